"""What a call to a server can come back with.

    RailgymError
    ├── UnknownEnv            NOT_FOUND
    ├── UnknownTask           NOT_FOUND
    ├── UnknownSession        NOT_FOUND
    ├── UnknownEpisode        NOT_FOUND
    ├── SessionClosed         FAILED_PRECONDITION
    ├── SessionExpired        FAILED_PRECONDITION
    ├── NotReset              FAILED_PRECONDITION
    ├── StepOutOfOrder        FAILED_PRECONDITION
    ├── EpisodeOutOfOrder     FAILED_PRECONDITION
    ├── EpisodeOver           FAILED_PRECONDITION
    ├── NotResumable          FAILED_PRECONDITION
    ├── BadAction             INVALID_ARGUMENT
    ├── BadOptions            INVALID_ARGUMENT
    ├── BadRequest            INVALID_ARGUMENT
    ├── BadPage               INVALID_ARGUMENT
    ├── TooManySessions       RESOURCE_EXHAUSTED
    ├── Unauthenticated       UNAUTHENTICATED
    ├── PermissionDenied      PERMISSION_DENIED
    ├── QuotaExceeded         RESOURCE_EXHAUSTED
    ├── WrongEndpoint         FAILED_PRECONDITION
    ├── ServerError           INTERNAL
    │   └── EnvError          INTERNAL
    ├── Unavailable           UNAVAILABLE: no server, or the connection broke
    │   ├── LogUnwritable     UNAVAILABLE
    │   └── Draining          UNAVAILABLE
    └── DeadlineExceeded      DEADLINE_EXCEEDED: no reply in time
        └── StepTimedOut      DEADLINE_EXCEEDED

Each class is one ErrorReason of proto/railgym/v1/env_service.proto, besides ServerError,
Unavailable and DeadlineExceeded, which gRPC itself may report. Everything else is a plain
RailgymError with its code. An agent's mistake is none of these: it is
an observation.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.rpc.error_details_pb2 import ErrorInfo

from railgym._grpc import grpc, rpc_status

DOMAIN = "railgym"


class RailgymError(Exception):
    """Base.

    Attributes:
        code: Name of the gRPC status code, for instance "NOT_FOUND".
        reason: Name of the ErrorReason without its prefix; empty where the server gave none.
        metadata: Every value that the message mentions, as text. Switch on the class and read
            these; the message is for people.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Keeps the parts of a status."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})


class UnknownEnv(RailgymError):
    """The server hosts no such environment; metadata: env_id, nearest."""


class UnknownTask(RailgymError):
    """The server has no such task; metadata: task_id, nearest."""


class UnknownSession(RailgymError):
    """No session ever had this id; metadata: session_id."""


class UnknownEpisode(RailgymError):
    """The server's log holds no such episode; metadata: episode_id."""


class SessionClosed(RailgymError):
    """The session was closed; metadata: session_id, ended_at, reason."""


class SessionExpired(RailgymError):
    """The session's lease ran out; metadata: session_id, ended_at, lease_seconds."""


class NotReset(RailgymError):
    """No episode has begun; metadata: session_id, state."""


class StepOutOfOrder(RailgymError):
    """Another client stepped, or took this step with another action; metadata: expected, got."""


class EpisodeOutOfOrder(RailgymError):
    """Another client reset the session; metadata: expected, got."""


class EpisodeOver(RailgymError):
    """The latest transition ended the episode; metadata: step, reason."""


class NotResumable(RailgymError):
    """The server cannot bring the session back from its log; metadata: session_id, detail."""


class BadAction(RailgymError):
    """The action does not fit the environment's action space; metadata: expected, got."""


class BadOptions(RailgymError):
    """An unknown option or a wrong value; metadata: option, expected, got."""


class BadRequest(RailgymError):
    """A field of a request is wrong; metadata: field, expected, got."""


class BadPage(RailgymError):
    """A page token that no list gave; metadata: page_token."""


class TooManySessions(RailgymError):
    """The server is full; metadata: current, max."""


class Unauthenticated(RailgymError):
    """No token, or one that the server does not know."""


class PermissionDenied(RailgymError):
    """The token does not allow this call, or not on this session; metadata: method."""


class QuotaExceeded(RailgymError):
    """The tenant holds as many sessions as it may; metadata: tenant, current, max."""


class WrongEndpoint(RailgymError):
    """The session lives on another worker of the server; metadata: session_id, endpoint."""


class ServerError(RailgymError):
    """The server failed. What happened stands in its own log."""


class EnvError(ServerError):
    """The environment failed, which ended the episode; metadata: session_id."""


class Unavailable(RailgymError):
    """No server answers, or the connection broke and did not come back in time."""


class LogUnwritable(Unavailable):
    """The server cannot write its log; the same call may be sent again."""


class Draining(Unavailable):
    """The server is stopping and takes no new sessions."""


class DeadlineExceeded(RailgymError):
    """No reply in time. What was asked for may have happened: repeat it, or resume the session."""


class StepTimedOut(DeadlineExceeded):
    """The environment took too long and was stopped; metadata: session_id, limit_seconds."""


REASONS: dict[str, type[RailgymError]] = {
    "UNKNOWN_ENV": UnknownEnv,
    "UNKNOWN_TASK": UnknownTask,
    "UNKNOWN_SESSION": UnknownSession,
    "UNKNOWN_EPISODE": UnknownEpisode,
    "SESSION_CLOSED": SessionClosed,
    "SESSION_EXPIRED": SessionExpired,
    "NOT_RESET": NotReset,
    "STEP_OUT_OF_ORDER": StepOutOfOrder,
    "EPISODE_OUT_OF_ORDER": EpisodeOutOfOrder,
    "EPISODE_OVER": EpisodeOver,
    "NOT_RESUMABLE": NotResumable,
    "BAD_ACTION": BadAction,
    "BAD_OPTIONS": BadOptions,
    "BAD_REQUEST": BadRequest,
    "BAD_PAGE": BadPage,
    "TOO_MANY_SESSIONS": TooManySessions,
    "ENV_ERROR": EnvError,
    "LOG_UNWRITABLE": LogUnwritable,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "QUOTA_EXCEEDED": QuotaExceeded,
    "WRONG_ENDPOINT": WrongEndpoint,
    "STEP_TIMED_OUT": StepTimedOut,
    "DRAINING": Draining,
}

_CODES: dict[str, type[RailgymError]] = {
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "INTERNAL": ServerError,
    "CANCELLED": Unavailable,  # by a server that stops; a client cancels nothing it waits for
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
}


def make_error(
    message: str, code: str, reason: str = "", metadata: Mapping[str, str] | None = None
) -> RailgymError:
    """Makes the error of a status: of its reason's class, else of its code's."""
    kind = REASONS.get(reason) or _CODES.get(code, RailgymError)
    return kind(message or code, code=code, reason=reason, metadata=metadata)


def from_rpc_error(error: grpc.RpcError) -> RailgymError:
    """Reads the error that a call raised, its google.rpc.ErrorInfo included."""
    info = ErrorInfo()
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # one of a call is a call
    except ValueError:  # cancelled here, when a status of the server had come just before
        status = None
    for detail in status.details if status is not None else ():
        if detail.Is(ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
    if info.domain != DOMAIN:
        info.Clear()
    return make_error(error.details() or "", error.code().name, info.reason, info.metadata)
