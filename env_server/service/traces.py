"""OpenTelemetry: one span for each call, sent where the standard OTEL_* variables say.

A span says which session, environment and step a call was about, and how it ended; never what an
agent sent or was told. That is why the ready-made gRPC instrumentation is not used: it copies the
texts and traces of errors, which quote what came. Needs the extra `otel`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from structlog.contextvars import get_contextvars

from env_server.service import subject
from railgym._version import __version__

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Continue: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]

OWN = "/railgym."
FIELDS = ("session_id", "env_id", "task_id", "episode", "step")
"""Fields of a request that become attributes."""

MAX_TEXT = 200
DETAILS = "grpc-status-details-bin"
"""Where a status carries its ErrorInfo."""

SERVER_AT_FAULT = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Codes that make a server's span an error, by OpenTelemetry's rules for gRPC."""


@contextlib.contextmanager
def exporting() -> Iterator[Tracer]:
    """Exports spans over OTLP while the block runs, and what is left of them at its end."""
    own = Resource.create({"service.name": "railgym", "service.version": __version__})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield provider.get_tracer("railgym", __version__)
    finally:
        provider.shutdown()


class Tracing(grpc.aio.ServerInterceptor):
    """Makes a span of every call to the services of Railgym."""

    def __init__(self, tracer: Tracer) -> None:
        """Makes spans with this tracer."""
        self._tracer = tracer

    async def intercept_service(
        self, continuation: Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        """Puts a span around the method that answers the call."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(OWN):
            return handler
        coding = handler.request_deserializer, handler.response_serializer
        if not handler.response_streaming:
            unary = self._unary(method, handler.unary_unary)
            return grpc.unary_unary_rpc_method_handler(unary, *coding)
        if handler.request_streaming:
            stream = self._stream(method, handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(stream, *coding)
        return grpc.unary_stream_rpc_method_handler(
            self._stream(method, handler.unary_stream), *coding
        )

    def _unary(self, method: str, answer: Any) -> Any:
        async def traced(request: Message, context: Context) -> Message:
            with self._span(method, context) as span:
                _describe(span, request)
                try:
                    response: Message = await answer(request, context)
                    return response
                finally:
                    _describe_session(span)

        return traced

    def _stream(self, method: str, answer: Any) -> Any:
        async def traced(request: Any, context: Context) -> AsyncIterator[Message]:
            with self._span(method, context) as span:
                if isinstance(request, Message):
                    _describe(span, request)
                responses = answer(request, context)
                if inspect.isawaitable(responses):  # one that writes by itself
                    await responses
                    return
                async with contextlib.aclosing(responses):
                    async for response in responses:
                        yield response

        return traced

    @contextlib.contextmanager
    def _span(self, method: str, context: Context) -> Iterator[Span]:
        _, service, rpc = method.split("/")
        carrier = {key: value for key, value in context.invocation_metadata() or ()}
        span = self._tracer.start_span(
            f"{service}/{rpc}",
            propagate.extract(carrier),
            SpanKind.SERVER,
            {"rpc.system": "grpc", "rpc.service": service, "rpc.method": rpc},
        )
        code = grpc.StatusCode.OK
        try:
            yield span
        except (asyncio.CancelledError, GeneratorExit):  # the client has left
            code = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.AbortError:
            code = context.code()
            raise
        finally:
            _conclude(span, code, context)
            span.end()


def _describe(span: Span, request: Message) -> None:
    """Notes what a call asks for."""
    for field in FIELDS:
        value = getattr(request, field, None)
        if value:
            kept = value[:MAX_TEXT] if isinstance(value, str) else value
            span.set_attribute(f"railgym.{field}", kept)


def _describe_session(span: Span) -> None:
    """Notes which session a call turned out to be about, and whose it is."""
    for name, value in subject.told().items():
        span.set_attribute(f"railgym.{name}", value)
    if "tenant" in (bound := get_contextvars()):
        span.set_attribute("railgym.tenant", bound["tenant"])


def _conclude(span: Span, code: grpc.StatusCode, context: Context) -> None:
    """Notes how a call ended: its code and its reason, without its text."""
    span.set_attribute("rpc.grpc.status_code", code.value[0])
    if code in SERVER_AT_FAULT:
        span.set_status(StatusCode.ERROR)
    for key, value in context.trailing_metadata() or ():
        if key == DETAILS:
            info = ErrorInfo()
            if RpcStatus.FromString(value).details[0].Unpack(info):
                span.set_attribute("railgym.reason", info.reason)
