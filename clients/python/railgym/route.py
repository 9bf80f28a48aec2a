"""The way to a session: straight to the worker that holds it, and by the front when that is gone.

A server of one process is its own front, and the way never changes. It is for one thread at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from railgym._grpc import grpc
from railgym.connection import Connection
from railgym.errors import LogUnwritable, Unavailable, WrongEndpoint
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

Request = TypeVar("Request")
Response = TypeVar("Response")

Rpc: TypeAlias = "Callable[[EnvServiceStub], grpc.UnaryUnaryMultiCallable[Request, Response]]"

HOP_SECONDS = 0.02
"""Between two places, since workers may disagree for a moment about who holds a session."""


class Route:
    """Makes the calls of one session, wherever it lives."""

    def __init__(self, front: Connection, endpoint: str = "") -> None:
        """Begins at an endpoint.

        Args:
            front: To the address that all workers share.
            endpoint: "host:port" of the worker that holds the session; empty: the front.
        """
        self._front = front
        self._here = front.at(endpoint) if endpoint else front

    def branch(self) -> Route:
        """The way to another session on the same worker."""
        return Route(self._front, "" if self._here is self._front else self._here.address)

    def ask(self, rpc: Rpc[Request, Response], request: Request) -> Response:
        """Makes a call that may be repeated; see `Connection.ask`.

        Where its worker is gone, another one takes the session up.
        """
        patient_until = time.monotonic() + self._front.patience_seconds
        while True:
            try:
                return self._here.ask(rpc(self._here.envs), request)
            except WrongEndpoint as e:
                self._follow(e, patient_until)
            except Unavailable as e:
                if self._here is self._front or isinstance(e, LogUnwritable):
                    raise
                self._go(self._front, e, patient_until)

    def ask_once(self, rpc: Rpc[Request, Response], request: Request) -> Response:
        """Makes a call that must not be repeated; see `Connection.ask_once`."""
        patient_until = time.monotonic() + self._front.patience_seconds
        while True:
            try:
                return self._here.ask_once(rpc(self._here.envs), request)
            except WrongEndpoint as e:
                self._follow(e, patient_until)

    def _follow(self, error: WrongEndpoint, patient_until: float) -> None:
        self._go(self._front.at(error.metadata["endpoint"]), error, patient_until)

    def _go(
        self, there: Connection, error: WrongEndpoint | Unavailable, patient_until: float
    ) -> None:
        if time.monotonic() > patient_until:
            # Not as a WrongEndpoint: the same call may well be made again.
            raise Unavailable(f"no worker answers: {error}", code="UNAVAILABLE") from error
        time.sleep(HOP_SECONDS)
        self._here = there
