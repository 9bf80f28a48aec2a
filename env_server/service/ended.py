"""Sessions that have ended: when, why, and how a client is told.

The latest ones are held in memory; of older ones the log knows it.
"""

from __future__ import annotations

import datetime
from collections import OrderedDict
from typing import NamedTuple

from env_server.errors import SessionClosed, SessionExpired

REMEMBERED = 100_000
"""Ended sessions that are remembered without a look into the log."""


class Ended(NamedTuple):
    """The end of a session.

    Attributes:
        at: When, in seconds since 1970.
        reason: Why.
        request_id: The client's own key for the creation; empty: none.
        tenant: Whose it was; empty: the server knew no tenants.
    """

    at: float
    reason: str
    request_id: str = ""
    tenant: str = ""


class EndedSessions:
    """The sessions that ended last."""

    def __init__(self) -> None:
        """Begins without any."""
        self._ends: OrderedDict[str, Ended] = OrderedDict()
        self._requests: dict[tuple[str, str], str] = {}

    def add(self, session_id: str, ended: Ended) -> None:
        """Remembers a session."""
        self._ends[session_id] = ended
        if ended.request_id:
            self._requests[ended.tenant, ended.request_id] = session_id
        if len(self._ends) > REMEMBERED:
            _, oldest = self._ends.popitem(last=False)
            self._requests.pop((oldest.tenant, oldest.request_id), None)

    def find(self, session_id: str) -> Ended | None:
        """How a session ended; None: that is not remembered."""
        return self._ends.get(session_id)

    def session_of(self, tenant: str, request_id: str) -> str | None:
        """The session that a tenant created with this key; None: that is not remembered."""
        return self._requests.get((tenant, request_id))


def gone(session_id: str, ended: Ended, lease_seconds: float) -> SessionClosed | SessionExpired:
    """The error for a session that was there and is no more."""
    when = datetime.datetime.fromtimestamp(ended.at, datetime.UTC).isoformat("T", "seconds")
    if ended.reason == "client_lost":
        return SessionExpired(
            f"session {session_id} expired at {when}: "
            f"idle for {lease_seconds:g} s, or its stream broke",
            session_id=session_id,
            ended_at=when,
            lease_seconds=lease_seconds,
        )
    return SessionClosed(
        f"session {session_id} was closed at {when}: {ended.reason}",
        session_id=session_id,
        ended_at=when,
        reason=ended.reason,
    )
