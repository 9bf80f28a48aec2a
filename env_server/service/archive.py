"""The sessions that are in the log and not in memory: whose they are, and taking them up.

A session belongs to the server that holds the segment of its latest record. A server that lives
holds its segments, also while it is frozen; what a dead one held goes to the first that is asked
for one of its sessions, with all that stand there.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from env_server.errors import NotResumable, UnknownSession, WrongEndpoint, shown
from env_server.log import LogIndex, LogWriter, Record, is_live
from env_server.service.ended import gone
from env_server.service.peers import Peers
from env_server.service.resume import end_of, not_resumable

LOCK_TRIES = 5
LOCK_SECONDS = 0.02
"""A server that only looks whether a segment's writer lives holds its lock for a moment."""


class Archive:
    """Finds sessions in a log that several servers may write."""

    def __init__(self, writer: LogWriter, peers: Peers, lease_seconds: float) -> None:
        """Reads the log.

        Args:
            writer: Of this server.
            peers: Know who holds a segment.
            lease_seconds: To be named where a session has expired.
        """
        self._writer = writer
        self._peers = peers
        self._lease_seconds = lease_seconds
        self._index = LogIndex(peers.directory)
        self._reading = asyncio.Lock()
        self._as_of = 0.0
        self._served_since = time.time()
        self._refresh()  # now, and not within the first call that needs it

    async def claim(self, session_id: str) -> list[Record]:
        """Reads the records of a session, and makes it this server's own.

        Raises:
            UnknownSession: It was never created.
            SessionClosed: It was closed.
            SessionExpired: Its lease ran out.
            WrongEndpoint: It lives on another server.
            NotResumable: It lives on another server, which does not say where.
            env_server.log.LogUnwritable: It cannot go on, since the log cannot be written.
        """
        asked = time.monotonic()
        async with self._reading:  # on a thread, since there may be much that is new in the log
            return await asyncio.to_thread(self._claim, session_id, asked)

    def tenant_of(self, session_id: str) -> str:
        """Whose a session is, as far as the log was read; empty: no tenant's."""
        return self._index.tenant_of(session_id)

    async def session_of(self, tenant: str, request_id: str) -> str | None:
        """The latest session that a tenant created with this key; None: there is none.

        What servers that live have created is only known as far as the log was read.
        """
        if self._peers.endpoint:
            async with self._reading:
                await asyncio.to_thread(self._read_the_dead)
        return next(reversed(self._index.sessions_of(request_id, tenant)), None)

    def _claim(self, session_id: str, asked: float) -> list[Record]:
        if self._as_of < asked:  # else another call has read the log since
            self._refresh()
        records = self._index.session(session_id) or []
        while records and not self._writer.holds(segment := records[-1].path):
            if records[-1].event.HasField("session_closed"):
                break
            if not self._take_over(segment):
                raise self._elsewhere(session_id, segment)
            self._refresh()  # its writer may have written on until it died
            records = self._index.session(session_id) or []
        if not records:
            raise _unknown(session_id)
        if (ended := end_of(records, self._served_since)) is not None:
            raise gone(session_id, ended, self._lease_seconds)
        self._writer.continue_after(records[-1].path)
        return records

    def _take_over(self, segment: Path) -> bool:
        for _ in range(LOCK_TRIES):
            if self._writer.take_over(segment):
                return True
            time.sleep(LOCK_SECONDS)
        return False

    def _elsewhere(self, session_id: str, segment: Path) -> WrongEndpoint | NotResumable:
        endpoint = self._peers.endpoint_of(segment)
        if not endpoint:
            return not_resumable(session_id, "another server holds it")
        return WrongEndpoint(
            f"session {session_id} lives on {endpoint}; call there",
            session_id=session_id,
            endpoint=endpoint,
        )

    def _read_the_dead(self) -> None:
        """Reads the log, if a server has died since the last time."""
        if not all(is_live(segment) for segment in self._index.unread()):
            self._refresh()

    def _refresh(self) -> None:
        as_of = time.monotonic()
        self._index.refresh()
        self._as_of = as_of


def _unknown(session_id: str) -> UnknownSession:
    return UnknownSession(
        f"no session {shown(session_id)} was ever created here", session_id=session_id[:80]
    )
