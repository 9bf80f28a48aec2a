"""One Rollout stream: batches of rows to many sessions, and their outcomes.

Unlike a `Session`, a stream cannot be resumed: when it breaks, the server closes its slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Thread

from google.rpc import code_pb2

from railgym._grpc import grpc
from railgym.connection import Connection
from railgym.errors import DeadlineExceeded, RailgymError, Unavailable, from_rpc_error, make_error
from railgym.v1 import env_service_pb2 as pb


class RolloutStream:
    """A stream that is open. It is for one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        """Opens the stream.

        Raises:
            Unavailable: There is no server, and none comes while the connection waits for one.
        """
        connection.await_startup()
        self._timeout_seconds = connection.timeout_seconds
        self._requests: SimpleQueue[pb.RolloutRequest | None] = SimpleQueue()
        self._replies: SimpleQueue[pb.RolloutResponse | RailgymError] = SimpleQueue()
        self._failure: RailgymError | None = None
        self._call = connection.envs.Rollout(
            iter(self._requests.get, None), metadata=connection.metadata
        )
        self._reader = Thread(target=self._read, name="railgym-rollout", daemon=True)
        self._reader.start()

    def exchange(self, rows: Sequence[pb.RolloutAction]) -> Sequence[pb.RolloutOutcome]:
        """Sends a batch and awaits its outcomes, which come in the order of the rows.

        Raises:
            RailgymError: Of the first row that failed; the others were done. Or the stream
                itself failed, now or before.
        """
        if self._failure is not None:
            raise self._failure
        self._requests.put(pb.RolloutRequest(rows=rows))
        outcomes = self._await_reply(len(rows)).rows
        for outcome in outcomes:
            if outcome.HasField("error"):
                raise _row_error(outcome)
        return outcomes

    def close(self) -> None:
        """Ends the stream, which closes its slots on the server. Closing twice is fine."""
        self._requests.put(None)
        self._reader.join(self._timeout_seconds)
        self._call.cancel()
        self._failure = self._failure or Unavailable("the stream was closed", code="UNAVAILABLE")

    def _await_reply(self, rows: int) -> pb.RolloutResponse:
        try:
            reply = self._replies.get(timeout=self._timeout_seconds)
        except Empty:
            self._call.cancel()
            reply = DeadlineExceeded(
                f"no reply to {rows} rows within {self._timeout_seconds} s",
                code="DEADLINE_EXCEEDED",
            )
        if isinstance(reply, RailgymError):
            self._failure = reply
            raise reply
        return reply

    def _read(self) -> None:
        try:
            for reply in self._call:
                self._replies.put(reply)
            self._replies.put(Unavailable("the server ended the stream", code="UNAVAILABLE"))
        except grpc.RpcError as e:
            self._replies.put(from_rpc_error(e))


def _row_error(outcome: pb.RolloutOutcome) -> RailgymError:
    error = outcome.error
    return make_error(
        f"slot {outcome.slot}: {error.message}",
        code_pb2.Code.Name(error.code),
        pb.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_"),
        error.metadata,
    )
