"""The gate that every call of every service passes: who calls, and whether with that method.

The health service is open to all. Any other method asks for a token where the server has tokens;
where it has none, everything is open, but an agent's token that is shown binds its bearer all the
same. Which sessions a caller may use is decided in `caller.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import unquote

import grpc
import structlog
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE

from env_server.errors import PermissionDenied, Unauthenticated
from env_server.service import caller
from env_server.service.caller import Caller
from env_server.service.identity import (
    ANYONE,
    Agent,
    AgentTokens,
    Identity,
    Operator,
    OperatorTokens,
)
from env_server.service.metrics import Metrics
from env_server.service.status import abort, reason
from railgym.v1 import env_service_pb2

ENV_SERVICE = env_service_pb2.DESCRIPTOR.services_by_name["EnvService"].full_name
AGENT_METHODS = frozenset(f"/{ENV_SERVICE}/{name}" for name in ("Step", "Render", "CloseSession"))

HEADER = "authorization"
_SCHEME = "bearer "
_OPEN = f"/{HEALTH_SERVICE}/"

log = structlog.get_logger()


class Gate(grpc.aio.ServerInterceptor):
    """Lets a call pass, or refuses it before its request is read."""

    def __init__(self, operators: OperatorTokens, agents: AgentTokens, metrics: Metrics) -> None:
        """Knows these tokens, and counts the calls that it refuses."""
        self._metrics = metrics
        self._operators = operators
        self._agents = agents

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Finds out who calls, and says so to whatever serves the call."""
        method = str(handler_call_details.method)
        if method.startswith(_OPEN):
            return await continuation(handler_call_details)
        try:
            identity = self._identify(handler_call_details.invocation_metadata or ())
            if isinstance(identity, Agent) and method not in AGENT_METHODS:
                raise PermissionDenied(f"{method}: an agent may not call this", method=method)
        except (Unauthenticated, PermissionDenied) as e:
            self._metrics.rpc_error(method.rpartition("/")[2], reason(e))
            return _refuse(e, method)
        caller.enter(Caller(identity, method))
        return await continuation(handler_call_details)

    def _identify(self, metadata: Iterable[tuple[str, str | bytes]]) -> Identity:
        shown = [str(value) for key, value in metadata if key == HEADER]
        if not shown and not self._operators:
            return ANYONE
        if len(shown) != 1 or not shown[0].lower().startswith(_SCHEME):
            raise Unauthenticated(
                'expected a token: the metadata "authorization: Bearer TOKEN", once '
                "(of the command: --token, or the variable RAILGYM_TOKEN)"
            )
        token = shown[0][len(_SCHEME) :].strip()
        session_id, tenant = self._agents.session_of(token), self._operators.tenant_of(token)
        if session_id is not None:
            return Agent(session_id)
        if tenant is None:
            raise Unauthenticated("the token is not one that this server knows")
        return Operator(tenant)


def _refuse(error: Unauthenticated | PermissionDenied, method: str) -> Any:
    async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        rpc, peer = method.rpartition("/")[2], unquote(context.peer())
        log.warning("refused", rpc=rpc, method=method, peer=peer, error=type(error).__name__)
        await abort(context, error)

    # As a stream it answers at once, whatever the call sends or does not send.
    return grpc.stream_stream_rpc_method_handler(refuse)
