"""One channel to one server, and how long to wait on it.

Every call has a deadline. Calls that may be repeated go on through a restart of the server: gRPC
itself repeats them a few times within a second or two (see `SERVICE_CONFIG`), and once more with
"wait for ready", which carries over any outage that is shorter than the patience. Nothing is
repeated but on UNAVAILABLE and CANCELLED, and no other call is repeated at all.

The channel is opened by the first call, and anew in a process that was forked since.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from railgym._grpc import grpc
from railgym.credentials import File, bearer, tls_credentials
from railgym.errors import DeadlineExceeded, RailgymError, Unavailable, from_rpc_error
from railgym.v1.env_service_pb2_grpc import EnvServiceStub
from railgym.v1.episode_service_pb2_grpc import EpisodeServiceStub

Request = TypeVar("Request")
Response = TypeVar("Response")

REPEATABLE = {
    "railgym.v1.EnvService": (
        "GetServerInfo",
        "ListEnvs",
        "ListTasks",
        "CreateSession",
        "Reset",
        "Step",
        "Render",
        "GetSession",
        "CloseSession",
    ),
    "railgym.v1.EpisodeService": ("ListEpisodes", "ReadEpisode", "ScoreEpisodes"),
    "grpc.health.v1.Health": ("Check",),
}
"""Calls that do nothing twice: reads, and those that carry a number or a key."""

SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [
                {"service": service, "method": method}
                for service, methods in REPEATABLE.items()
                for method in methods
            ],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.05s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                # A server that stops says CANCELLED to a call that comes just then.
                "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
            },
        }
    ]
}

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""As servers have it, if not told otherwise; raise it by the option of `connect` where they do."""

OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A peer that is gone without a word is noticed within 40 s, also in a long call.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Also of the pings by which gRPC measures a connection: while one is lost, no other is sent.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Look for a server that restarts every second, not ever more seldom up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A connection for each client, so that those of one process come to all workers of a server.
    ("grpc.use_local_subchannel_pool", 1),
)


class Connection:
    """A channel that is opened by the first call. Safe to share between threads."""

    def __init__(
        self,
        address: str,
        *,
        timeout_seconds: float = 60.0,
        patience_seconds: float = 30.0,
        startup_seconds: float = 0.0,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
        tls_ca: File | None = None,
        tls_cert: File | None = None,
        tls_key: File | None = None,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """Opens nothing yet; see `railgym.connect` for the arguments."""
        self.address = address
        self.timeout_seconds = timeout_seconds
        self.patience_seconds = patience_seconds
        self._startup_seconds = startup_seconds
        self._credentials = credentials
        self._tls = tls_ca, tls_cert, tls_key
        self.metadata = bearer(token)
        # Of two options of one name gRPC would take the first.
        self._options = tuple({**dict(OPTIONS), **dict(options)}.items())
        self._workers: dict[str, Connection] = {}
        self._reached = False
        self._pid = 0

    @property
    def channel(self) -> grpc.Channel:
        """The channel of this process."""
        if self._pid != os.getpid():
            self._open()
        return self._channel

    @property
    def envs(self) -> EnvServiceStub:
        """The calls of an agent's client."""
        if self._pid != os.getpid():
            self._open()
        return self._envs

    @property
    def episodes(self) -> EpisodeServiceStub:
        """The calls of an operator."""
        return EpisodeServiceStub(self.channel)

    def at(self, endpoint: str) -> Connection:
        """The connection to one worker of the server. It does not wait for one that is gone."""
        worker = copy.copy(self)
        worker.address = endpoint
        worker.patience_seconds = worker._startup_seconds = 0.0
        worker._workers, worker._pid = {}, 0
        return self._workers.setdefault(endpoint, worker)

    def await_startup(self) -> None:
        """Waits for a server that is not there yet, as the first call would.

        Raises:
            Unavailable: It does not come in time.
        """
        if self._startup_seconds <= 0:
            return
        try:
            grpc.channel_ready_future(self.channel).result(self._startup_seconds)
        except grpc.FutureTimeoutError:
            raise Unavailable(
                f"no server at {self.address} within {self._startup_seconds} s", code="UNAVAILABLE"
            ) from None

    def ask(
        self, rpc: grpc.UnaryUnaryMultiCallable[Request, Response], request: Request
    ) -> Response:
        """Makes a call that may be repeated, through an outage if need be.

        Raises:
            RailgymError: As the server says; Unavailable or DeadlineExceeded where it does not.
        """
        try:
            response = rpc(request, timeout=self.timeout_seconds, metadata=self.metadata)
        except grpc.RpcError as e:
            wait = self.patience_seconds if self._reached else self._startup_seconds
            error = self._error(e)
            if not isinstance(error, Unavailable) or wait <= 0:
                raise error from e
            response = self._await_server(rpc, request, wait, error)
        self._reached = True
        return response

    def ask_once(
        self, rpc: grpc.UnaryUnaryMultiCallable[Request, Response], request: Request
    ) -> Response:
        """Makes a call that must not be repeated.

        Raises:
            RailgymError: As the server says; Unavailable or DeadlineExceeded where it does not.
        """
        try:
            return rpc(request, timeout=self.timeout_seconds, metadata=self.metadata)
        except grpc.RpcError as e:
            raise from_rpc_error(e) from e

    def stream(
        self,
        rpc: grpc.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        timeout_seconds: float | None = None,
    ) -> Iterator[Response]:
        """Makes a call whose answer is a stream.

        Args:
            rpc: The call.
            request: Its request.
            timeout_seconds: For the whole stream; None: as for other calls.

        Raises:
            RailgymError: As the server says; Unavailable or DeadlineExceeded where it does not.
        """
        timeout = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            yield from rpc(request, timeout=timeout, metadata=self.metadata)
        except grpc.RpcError as e:
            raise from_rpc_error(e) from e

    def close(self) -> None:
        """Closes the channel; a later call opens another."""
        for worker in self._workers.values():
            worker.close()
        if self._pid == os.getpid():
            self._channel.close()
        self._pid = 0

    def _await_server(
        self,
        rpc: grpc.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        seconds: float,
        first: RailgymError,
    ) -> Response:
        try:
            return rpc(request, timeout=seconds, wait_for_ready=True, metadata=self.metadata)
        except grpc.RpcError as e:
            error = self._error(e)
            raise first if isinstance(error, DeadlineExceeded) else error from e

    def _error(self, raised: grpc.RpcError) -> RailgymError:
        """The error of a call, with what may be wrong where a connection never came about."""
        error = from_rpc_error(raised)
        if type(error) is not Unavailable or self._reached:
            return error
        in_clear = not (self._credentials or any(self._tls))
        hint = _hint(str(error), in_clear=in_clear)
        return Unavailable(f"{error} ({hint})", code=error.code) if hint else error

    def _open(self) -> None:
        credentials = self._credentials or tls_credentials(*self._tls)
        if credentials is None:
            self._channel = grpc.insecure_channel(self.address, self._options)
        else:
            self._channel = grpc.secure_channel(self.address, credentials, self._options)
        self._envs = EnvServiceStub(self._channel)
        self._pid = os.getpid()


def _hint(error: str, *, in_clear: bool) -> str:
    """What may be wrong where TLS failed; empty: it does not look like that.

    A port of TLS hangs up without a word, on who speaks in clear as on who shows no certificate.
    """
    if in_clear:
        return "does the server want TLS? see tls_ca" * ("Socket closed" in error)
    hints = {
        "WRONG_VERSION_NUMBER": "does the server speak TLS at all?",
        "CERTIFICATE_VERIFY_FAILED": "tls_ca is not the authority that signed its certificate",
        "Socket closed": "does the server want a certificate of yours? see tls_cert and tls_key",
    }
    return next((hint for sign, hint in hints.items() if sign in error), "")
