"""All sessions of one server: capacity, leases, resuming, and the way into the log.

A session that is not in memory is looked for in the log: one whose lease still runs is taken up
where it stood, and of one that ended it is known when and why.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import structlog

from env_server.errors import (
    BadRequest,
    LogUnwritable,
    NotResumable,
    RailgymError,
    SessionClosed,
    SessionExpired,
    TooManySessions,
    UnknownSession,
    shown,
)
from env_server.log import Chain, LogIndex, LogWriter, Record, is_live
from env_server.registry import Registry
from env_server.service.ended import Ended, EndedSessions, gone
from env_server.service.player import Player
from env_server.service.records import Opening, Records
from env_server.service.resume import end_of, not_resumable, resume
from env_server.service.session import Session

DEFAULT_CAPACITY = 10_000
DEFAULT_LEASE_SECONDS = 900.0

log = structlog.get_logger()


class Sessions:
    """The sessions of one server.

    Attributes:
        registry: The environments and tasks that it hosts.
        directory: Where the log is.
        lease_seconds: Of idleness, until a session expires.
        capacity: Most sessions at once.
    """

    def __init__(
        self,
        registry: Registry,
        directory: Path,
        *,
        capacity: int = DEFAULT_CAPACITY,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
    ) -> None:
        """Opens the log of a directory, cuts torn tails, and begins a segment of its own.

        Raises:
            OSError: The directory cannot be written.
        """
        self.registry = registry
        self.directory = directory
        self.capacity = capacity
        self.lease_seconds = lease_seconds
        self._live: dict[str, Session] = {}
        self._requests: dict[str, str] = {}
        self._taking_up: dict[str, asyncio.Task[Session]] = {}
        self._ended = EndedSessions()
        self._writer = LogWriter(directory)
        self._index = LogIndex(directory)
        self._index.refresh()  # now, and not within the first call that needs it
        self._reading = asyncio.Lock()
        for cut in self._writer.cut:
            log.warning("torn_tail_cut", file=str(cut.path), bytes=cut.length)

    def __len__(self) -> int:
        """How many sessions are live."""
        return len(self._live)

    async def create(self, opening: Opening, request_id: str = "") -> Session:
        """Opens a session, or returns the one that was opened with the same `request_id`.

        Raises:
            TooManySessions: The server is full.
            BadRequest: The session that was opened with this `request_id` has ended, or was
                asked for otherwise.
        """
        if request_id and (known := await self._requested(request_id)) is not None:
            if known.player.opening != opening:
                raise _used(request_id, "a session that was asked for otherwise")
            return known
        session = self._open(opening, request_id)
        self._adopt(session)
        if request_id:
            self._requests[request_id] = session.session_id
        return session

    async def fork(self, parent: Session, step: int | None, labels: Mapping[str, str]) -> Session:
        """Copies a session at its current step, or at an earlier one of the same episode.

        Raises:
            TooManySessions: The server is full.
            RailgymError: As `fork.copy`.
        """
        self._make_room()
        opening = parent.player.opening
        child = self._open(opening._replace(labels={**opening.labels, **labels}), "")
        try:
            await parent.fork_into(child, step)
            self._adopt(child)
        except RailgymError:
            child.player.drop_env()
            raise
        return child

    async def find(self, session_id: str) -> Session:
        """Finds a live session, or takes it up from the log, and renews its lease.

        Raises:
            UnknownSession: It was never created.
            SessionClosed: It was closed; the metadata say when.
            SessionExpired: Its lease ran out; the metadata say when.
            NotResumable: Its records cannot be followed, or another server writes them.
            LogUnwritable: It cannot be taken up, since the log cannot be written.
        """
        session = self._live.get(session_id)
        if session is None:
            session = await self._taken_up(session_id)
        elif session.expired:
            raise gone(session_id, Ended(session.expires_at(), "client_lost"), self.lease_seconds)
        session.renew(self.lease_seconds)
        return session

    async def close(self, session_id: str, reason: str) -> None:
        """Ends a session; one that has ended already stays as it is.

        Raises:
            UnknownSession: It was never created.
            LogUnwritable: The log cannot be written.
        """
        try:
            session = await self.find(session_id)
        except (SessionClosed, SessionExpired, NotResumable):
            return
        await self._end(session, reason)

    def abandon(self, session_id: str) -> None:
        """Ends the lease of a session whose client has gone without a word."""
        if session_id in self._live:
            self._live[session_id].renew(0)

    async def reap(self) -> int:
        """Ends every session whose lease has run out.

        Returns:
            How many there were.

        Raises:
            LogUnwritable: The log cannot be written.
        """
        lost = [session for session in self._live.values() if session.expired]
        for session in lost:
            await self._end(session, "client_lost")
            log.info("session_expired", session_id=session.session_id)
        return len(lost)

    def flush(self, sessions: Iterable[Session]) -> None:
        """Puts the pending records of sessions into the log, before their replies leave.

        Raises:
            LogUnwritable: The log cannot be written; the records stay pending.
        """
        waiting = [pending for session in sessions if (pending := session.player.records.pending)]
        payloads = [payload for pending in waiting for payload in pending]
        if not payloads:
            return
        try:
            self._writer.append(payloads)
        except OSError as e:
            raise _unwritable(e) from None
        for pending in waiting:
            pending.clear()

    def sync(self) -> None:
        """Brings what was written to the disk itself.

        Raises:
            OSError: The disk does not take it.
        """
        self._writer.sync()

    def shut(self) -> None:
        """Writes what is pending and closes the log. Live sessions can be resumed from it.

        Raises:
            LogUnwritable: The log cannot be written; what is pending, no client has seen.
            OSError: The disk does not take what was written.
        """
        try:
            self.flush(self._live.values())
        finally:
            self._writer.close()

    def _open(self, opening: Opening, request_id: str) -> Session:
        session_id = secrets.token_hex(16)
        records = Records(Chain(session_id))
        records.open(opening, self.lease_seconds, request_id)
        return Session(session_id, Player(opening, records), request_id)

    def _adopt(self, session: Session) -> None:
        self._make_room()
        session.renew(self.lease_seconds)
        self._live[session.session_id] = session

    def _make_room(self) -> None:
        if len(self._live) >= self.capacity:
            raise TooManySessions(
                f"the server holds {len(self._live)} sessions of at most {self.capacity}; "
                "close one, or come back later",
                current=len(self._live),
                max=self.capacity,
            )

    async def _end(self, session: Session, reason: str) -> None:
        await session.close(reason)
        self.flush([session])
        self._live.pop(session.session_id, None)
        self._requests.pop(session.request_id, None)
        if session.ended is not None:
            self._ended.add(session.session_id, session.ended)

    async def _requested(self, request_id: str) -> Session | None:
        known = (
            self._requests.get(request_id)
            or self._ended.session_of(request_id)
            or next(reversed(self._index.sessions_of(request_id)), None)
        )
        if known is None:
            return None
        try:
            return await self.find(known)
        except (SessionClosed, SessionExpired) as e:
            raise _used(request_id, f"a session that has ended: {e}") from None

    async def _taken_up(self, session_id: str) -> Session:
        """Takes up a session from the log, once for all calls that ask for it meanwhile."""
        task = self._taking_up.get(session_id)
        if task is None:
            task = asyncio.create_task(self._take_up(session_id))
            self._taking_up[session_id] = task
            task.add_done_callback(lambda _: self._taking_up.pop(session_id))
        return await asyncio.shield(task)

    async def _take_up(self, session_id: str) -> Session:
        if (ended := self._ended.find(session_id)) is not None:
            raise gone(session_id, ended, self.lease_seconds)
        async with self._reading:  # on a thread, since there may be much that is new in the log
            records = await asyncio.to_thread(self._read, session_id)
        self._check_free(session_id, records)
        session = await resume(records, self.registry)
        try:
            self._writer.continue_after(records[-1].path)
        except OSError as e:
            raise _unwritable(e) from None
        self._adopt(session)
        log.info("session_resumed", session_id=session_id, records=len(records))
        return session

    def _read(self, session_id: str) -> list[Record]:
        self._index.refresh()  # another server may have written them, or this one, long ago
        return self._index.session(session_id) or []

    def _check_free(self, session_id: str, records: list[Record]) -> None:
        """Makes sure that a session is there to be taken up."""
        if not records:
            raise UnknownSession(
                f"no session {shown(session_id)} was ever created here",
                session_id=session_id[:80],
            )
        if (ended := end_of(records)) is not None:
            raise gone(session_id, ended, self.lease_seconds)
        if records[-1].path != self._writer.path and is_live(records[-1].path):
            raise not_resumable(session_id, "another server holds it")


def _used(request_id: str, by: str) -> BadRequest:
    return BadRequest(
        f"request_id: expected a new one, got {shown(request_id)}, which was used for {by}",
        field="request_id",
        expected="a new one",
        got=request_id[:80],
    )


def _unwritable(error: OSError) -> LogUnwritable:
    log.error("log_unwritable", error=str(error))
    return LogUnwritable("the log cannot be written; send the same call again")
