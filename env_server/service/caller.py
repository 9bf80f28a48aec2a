"""Who makes the call that is at work, and which sessions they may use.

`access.py` says who it is, once for each call; whoever needs to know asks here. Outside of a call
there is no caller, and nothing is allowed.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

import structlog
from structlog.contextvars import bind_contextvars

from env_server.errors import PermissionDenied
from env_server.service.identity import Agent, Identity, Operator


class Caller(NamedTuple):
    """Makes a call.

    Attributes:
        identity: Who.
        method: Which, for instance "/railgym.v1.EnvService/Step".
    """

    identity: Identity
    method: str


_CALLER: ContextVar[Caller] = ContextVar("caller")

log = structlog.get_logger()


def enter(caller: Caller) -> None:
    """Says who makes the call that is at work, to the lines of the server's log as well."""
    _CALLER.set(caller)
    if isinstance(caller.identity, Operator) and caller.identity.tenant:
        bind_contextvars(tenant=caller.identity.tenant)


def operator() -> Operator:
    """The operator who makes the call.

    Raises:
        PermissionDenied: It is an agent.
    """
    identity, method = _CALLER.get()
    if isinstance(identity, Agent):
        raise _denied(method, "an agent may step, render and close its own session only")
    return identity


def check_session(session_id: str) -> None:
    """Keeps an agent to its own session, whether there is another one of this id or not.

    Raises:
        PermissionDenied: It is not the agent's own.
    """
    identity, method = _CALLER.get()
    if isinstance(identity, Agent) and identity.session_id != session_id:
        raise _denied(method, "this token is for another session", session_id=session_id[:80])


def check_tenant(tenant: str) -> None:
    """Keeps an operator to the sessions of its tenant.

    Raises:
        PermissionDenied: The session is another tenant's.
    """
    identity, method = _CALLER.get()
    if isinstance(identity, Operator) and not identity.sees(tenant):
        why = "the session is not one of this token's tenant"
        raise _denied(method, why, tenant=identity.tenant)


def _denied(method: str, why: str, **about: str) -> PermissionDenied:
    """The error for a call that a caller may not make. It is logged here, without any token."""
    log.warning("permission_denied", method=method, why=why, **about)
    return PermissionDenied(f"{method}: {why}", method=method)
