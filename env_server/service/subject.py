"""The session that the call at work is about, for the lines of the server's log and for spans.

It is set once for every call and every row of a Rollout, which costs next to nothing; what is
said of it is only made where somebody asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from env_server.service.session import Session

_SESSION: ContextVar[Session | None] = ContextVar("session", default=None)


def tell_of(session: Session | None) -> None:
    """Says which session the call is about from here on; None: about no single one."""
    _SESSION.set(session)


@contextlib.contextmanager
def telling_of(session: Session) -> Iterator[None]:
    """Says which session it is about while the block runs."""
    token = _SESSION.set(session)
    try:
        yield
    finally:
        _SESSION.reset(token)


def told() -> dict[str, str]:
    """The session and its environment by name; empty where the call is about none."""
    session = _SESSION.get()
    return {} if session is None else {"session_id": session.session_id, "env_id": session.env_id}


def add_session(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds the session to a line of the log, unless the line names one itself."""
    return {**told(), **event}
