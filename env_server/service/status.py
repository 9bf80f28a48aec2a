"""Errors to gRPC statuses: the one place that makes them.

Every RailgymError becomes a status with a google.rpc.ErrorInfo. Anything else is a fault of the
server: its trace goes to the server's log, and the client gets INTERNAL without its text.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from traceback import format_exc
from typing import Any, NoReturn, TypeVar

import grpc
import structlog
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from structlog.contextvars import bind_contextvars

from env_server import errors
from env_server.service.metrics import Metrics
from railgym.info_codec import wire_text
from railgym.v1 import env_service_pb2

DOMAIN = "railgym"

CODES: dict[type[errors.RailgymError], grpc.StatusCode] = {
    errors.UnknownEnv: grpc.StatusCode.NOT_FOUND,
    errors.UnknownTask: grpc.StatusCode.NOT_FOUND,
    errors.UnknownSession: grpc.StatusCode.NOT_FOUND,
    errors.UnknownEpisode: grpc.StatusCode.NOT_FOUND,
    errors.SessionClosed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.SessionExpired: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NotReset: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StepOutOfOrder: grpc.StatusCode.FAILED_PRECONDITION,
    errors.EpisodeOutOfOrder: grpc.StatusCode.FAILED_PRECONDITION,
    errors.EpisodeOver: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NotResumable: grpc.StatusCode.FAILED_PRECONDITION,
    errors.BadAction: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BadOptions: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BadPage: grpc.StatusCode.INVALID_ARGUMENT,
    errors.TooManySessions: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.LogUnwritable: grpc.StatusCode.UNAVAILABLE,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.QuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.WrongEndpoint: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StepTimedOut: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.Draining: grpc.StatusCode.UNAVAILABLE,
    errors.EnvError: grpc.StatusCode.INTERNAL,
}

Request = TypeVar("Request")
Response = TypeVar("Response")
Method = Callable[[Any, Request, grpc.aio.ServicerContext[Any, Any]], Awaitable[Response]]
StreamMethod = Callable[
    [Any, Request, grpc.aio.ServicerContext[Any, Any]], AsyncGenerator[Response, None]
]

log = structlog.get_logger()


def reason(error: errors.RailgymError) -> str:
    """The ErrorReason of an error, without its prefix."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).upper()


def reason_to_proto(error: errors.RailgymError) -> env_service_pb2.ErrorReason.ValueType:
    """The ErrorReason of an error."""
    return env_service_pb2.ErrorReason.Value(f"ERROR_REASON_{reason(error)}")


def metadata(error: errors.RailgymError) -> dict[str, str]:
    """The metadata of an error as a message can hold them: without lone surrogates."""
    return {name: wire_text(value) for name, value in error.metadata.items()}


def unary(method: Method[Request, Response]) -> Method[Request, Response]:
    """Lets a unary servicer method raise instead of making statuses."""

    @functools.wraps(method)
    async def wrapped(
        self: Any, request: Request, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Response:
        bind_contextvars(rpc=method.__name__)
        try:
            return await method(self, request, context)
        except Exception as e:  # what is no RailgymError is a bug
            await _fail(context, method.__name__, e, self.metrics)

    return wrapped


def streaming(method: StreamMethod[Request, Response]) -> StreamMethod[Request, Response]:
    """Lets a servicer method that streams raise instead of making statuses."""

    @functools.wraps(method)
    async def wrapped(
        self: Any, request: Request, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncGenerator[Response, None]:
        bind_contextvars(rpc=method.__name__)
        try:
            async with contextlib.aclosing(method(self, request, context)) as responses:
                async for response in responses:
                    yield response
        except Exception as e:  # what is no RailgymError is a bug
            await _fail(context, method.__name__, e, self.metrics)

    return wrapped


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], error: errors.RailgymError
) -> NoReturn:
    """Ends an RPC with the status of an error."""
    info = ErrorInfo(reason=reason(error), domain=DOMAIN, metadata=metadata(error))
    detail = AnyMessage()
    detail.Pack(info)
    code: int = CODES[type(error)].value[0]
    status = rpc_status.to_status(
        Status(code=code, message=wire_text(str(error)), details=[detail])
    )
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("abort always raises")


async def _fail(
    context: grpc.aio.ServicerContext[Any, Any], rpc: str, error: Exception, metrics: Metrics
) -> NoReturn:
    """Ends an RPC that raised. Of a bug, the client learns nothing but that there is one."""
    if isinstance(error, DecodeError):
        error = errors.BadRequest(
            f"expected a request of {rpc}, got bytes that are none",
            field="",
            expected=f"a request of {rpc}",
            got="bytes that are none",
        )
    if not isinstance(error, errors.RailgymError):
        log.error("rpc_failed", error=type(error).__name__, exception=format_exc())
        error = errors.EnvError("internal error; the trace stands in the server's log")
    metrics.rpc_error(rpc, reason(error))
    await abort(context, error)
