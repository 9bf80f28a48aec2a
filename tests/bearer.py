"""Tokens on the wire: a channel whose every call shows one, and all methods that there are."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from raw import SECONDS, Refusal

from railgym.errors import from_rpc_error
from railgym.v1 import env_service_pb2, episode_service_pb2
from railgym.v1.env_service_pb2_grpc import EnvServiceStub
from railgym.v1.episode_service_pb2_grpc import EpisodeServiceStub


def methods(*modules: Any) -> list[str]:
    """The methods of all services of proto modules, as they are called on the wire."""
    return [
        f"/{service.full_name}/{method.name}"
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


HEALTH = methods(health_pb2)
GUARDED = methods(env_service_pb2, episode_service_pb2, reflection_pb2)


class _Showing(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _call(self, continuation, details, request):
        return continuation(details._replace(metadata=[self._header]), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_stream = _call


class Caller(NamedTuple):
    """Somebody with a token, and the services as they see them."""

    channel: grpc.Channel
    envs: EnvServiceStub
    episodes: EpisodeServiceStub


@contextlib.contextmanager
def showing(address: str, token: str | None = None) -> Iterator[Caller]:
    with grpc.insecure_channel(address) as channel:
        shown = channel if token is None else grpc.intercept_channel(channel, _Showing(token))
        yield Caller(shown, EnvServiceStub(shown), EpisodeServiceStub(shown))


def refused(channel: grpc.Channel, method: str, request: bytes = b"", **metadata: str) -> Refusal:
    """Calls a method, whatever its kind, and gives the refusal."""
    call = channel.unary_unary(method)
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=SECONDS, metadata=list(metadata.items()))
    error = from_rpc_error(caught.value)
    return Refusal(error.code, error.reason, error.metadata, str(error))
