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
from structlog.contextvars import bind_contextvars

from env_server.errors import (
    BadRequest,
    NotResumable,
    RailgymError,
    SessionClosed,
    SessionExpired,
    shown,
)
from env_server.log import Chain
from env_server.registry import Registry
from env_server.service import caller
from env_server.service.absent import Absent
from env_server.service.archive import Archive
from env_server.service.ended import Ended, gone
from env_server.service.env_process import Hosts
from env_server.service.journal import Journal
from env_server.service.limits import Limits
from env_server.service.metrics import Metrics
from env_server.service.peers import Peers
from env_server.service.player import Player
from env_server.service.records import Opening, Records
from env_server.service.resume import resume
from env_server.service.room import Room
from env_server.service.session import Session
from env_server.service.subject import tell_of, telling_of

DEFAULT_CAPACITY = 10_000
DEFAULT_LEASE_SECONDS = 900.0
LOOKED_AT_ONCE = 500
"""Leases, until calls have their turn again."""

log = structlog.get_logger()


class Sessions:
    """The sessions of one server.

    Attributes:
        registry: The environments and tasks that it hosts.
        directory: Where the log is.
        lease_seconds: Of idleness, until a session expires.
        capacity: Most sessions at once.
        metrics: What happens to them, counted.
        endpoint: Where its sessions live, "host:port"; empty: where they were created.
        limits: What clients and environments are held to.
        hosts: Runs their environments.
        journal: Takes their records; to be checked before anything is done that is recorded.
    """

    def __init__(
        self,
        registry: Registry,
        directory: Path,
        *,
        metrics: Metrics,
        capacity: int = DEFAULT_CAPACITY,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        quotas: Mapping[str, int] | None = None,
        endpoint: str = "",
        limits: Limits = Limits(),  # noqa: B008  # a tuple, which nobody can change
    ) -> None:
        """Opens the log of a directory, cuts torn tails, and begins a segment of its own.

        Raises:
            OSError: The directory cannot be written.
        """
        self.registry = registry
        self.directory = directory
        self.capacity = capacity
        self.lease_seconds = lease_seconds
        self.limits = limits
        self.metrics = metrics
        self.endpoint = endpoint
        self.hosts = Hosts(limits, registry.envs.values())
        self._live: dict[str, Session] = {}
        self._room = Room(capacity, quotas or {})
        self._requests: dict[tuple[str, str], str] = {}
        peers = Peers(directory, endpoint)
        self.journal = Journal(directory, peers.announce, limits.free_log_bytes, metrics)
        self._archive = Archive(self.journal.writer, peers, lease_seconds)
        self._absent = Absent(self._archive, lease_seconds, self._take_up)

    def __len__(self) -> int:
        """How many sessions are live."""
        return len(self._live)

    async def create(self, opening: Opening, request_id: str = "") -> Session:
        """Opens a session, or returns the one that was opened with the same `request_id`.

        Raises:
            LogUnwritable: The disk of the log is short.
            Draining: The server is stopping.
            TooManySessions: The server is full.
            QuotaExceeded: The tenant holds as many as it may.
            WrongEndpoint: The session that was opened with this `request_id` lives elsewhere.
            BadRequest: The session that was opened with this `request_id` has ended, or was
                asked for otherwise.
        """
        if request_id and (known := await self._requested(opening.tenant, request_id)) is not None:
            if known.player.opening != opening:
                raise _used(request_id, "a session that was asked for otherwise")
            return known
        self.journal.check()
        session = self._open(opening, request_id)
        self._adopt(session)
        self.metrics.sessions_created.inc()
        if request_id:
            self._requests[opening.tenant, request_id] = session.session_id
        return session

    async def fork(self, parent: Session, step: int | None, labels: Mapping[str, str]) -> Session:
        """Copies a session at its current step, or at an earlier one of the same episode.

        Raises:
            LogUnwritable: The disk of the log is short.
            Draining: The server is stopping.
            TooManySessions: The server is full.
            QuotaExceeded: The tenant holds as many as it may.
            RailgymError: As `fork.copy`.
        """
        opening = parent.player.opening
        self.journal.check()
        self._room.check(opening.tenant)
        child = self._open(opening._replace(labels={**opening.labels, **labels}), "")
        try:
            await parent.fork_into(child, step)
            self._adopt(child)
            self.metrics.sessions_created.inc()
        except RailgymError:
            child.player.drop_env()
            raise
        return child

    async def find(self, session_id: str) -> Session:
        """Finds a live session, or takes it up from the log, and renews its lease.

        Raises:
            PermissionDenied: It is not one of the caller's.
            UnknownSession: It was never created.
            SessionClosed: It was closed; the metadata say when.
            SessionExpired: Its lease ran out; the metadata say when.
            WrongEndpoint: It lives on another worker; the metadata say which.
            NotResumable: Its records cannot be followed, or another server writes them.
            LogUnwritable: It cannot be taken up, since the log cannot be written.
        """
        caller.check_session(session_id)
        session = self._live.get(session_id)
        if session is None:
            session = await self._absent.find(session_id)
        caller.check_tenant(session.player.opening.tenant)
        if session.expired:
            raise gone(session_id, Ended(session.expires_at(), "client_lost"), self.lease_seconds)
        session.renew(self.lease_seconds)
        tell_of(session)
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
        lost = 0
        for number, session in enumerate(list(self._live.values()), start=1):
            if session.expired:
                await self._end(session, "client_lost")
                lost += 1
            if number % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return lost

    def flush(self, sessions: Iterable[Session]) -> None:
        """Puts the pending records of sessions into the log, before their replies leave.

        Raises:
            LogUnwritable: The log cannot be written; the records stay pending.
        """
        self.journal.write(session.player.records.pending for session in sessions)

    def drain(self) -> None:
        """Lets no more sessions begin; those that live go on."""
        self._room.shut()

    def shut(self) -> None:
        """Writes what is pending and closes the log. Live sessions can be resumed from it.

        Raises:
            LogUnwritable: The log cannot be written; what is pending, no client has seen.
            OSError: The disk does not take what was written.
        """
        try:
            self.flush(self._live.values())
        finally:
            self.hosts.stop()
            self.journal.close()

    def _open(self, opening: Opening, request_id: str) -> Session:
        session_id = secrets.token_hex(16)
        records = Records(Chain(session_id))
        records.open(opening, self.lease_seconds, request_id)
        player = Player(opening, records, self.metrics.env(opening.entry.env_id), self.hosts)
        return Session(session_id, player, request_id)

    def _adopt(self, session: Session) -> None:
        self._room.take(session.player.opening.tenant)
        session.renew(self.lease_seconds)
        self._live[session.session_id] = session
        self.metrics.env(session.env_id).sessions.inc()
        tell_of(session)

    async def _end(self, session: Session, reason: str) -> None:
        with telling_of(session):
            await session.close(reason)
            self.flush([session])
            if self._live.pop(session.session_id, None) is not None:
                self._note_end(session)

    def _note_end(self, session: Session) -> None:
        tenant = session.player.opening.tenant
        self._room.leave(tenant)
        self._requests.pop((tenant, session.request_id), None)
        if session.ended is not None:
            self._absent.add(session.session_id, session.ended)
            self.metrics.env(session.env_id).sessions.dec()
            self.metrics.sessions_ended.labels(session.ended.reason).inc()
            log.info("session_ended", reason=session.ended.reason, episodes=session.player.number)

    async def _requested(self, tenant: str, request_id: str) -> Session | None:
        known = self._requests.get((tenant, request_id)) or await self._absent.session_of(
            tenant, request_id
        )
        if known is None:
            return None
        try:
            return await self.find(known)
        except (SessionClosed, SessionExpired) as e:
            raise _used(request_id, f"a session that has ended: {e}") from None

    async def _take_up(self, session_id: str) -> Session:
        try:
            records = await self._archive.claim(session_id)
        except OSError as e:
            raise self.journal.unwritable(e) from None
        bind_contextvars(session_id=session_id)
        session = await resume(records, self.registry, self.metrics, self.hosts)
        self._adopt(session)
        log.info("session_resumed", records=len(records))
        return session


def _used(request_id: str, by: str) -> BadRequest:
    return BadRequest(
        f"request_id: expected a new one, got {shown(request_id)}, which was used for {by}",
        field="request_id",
        expected="a new one",
        got=request_id[:80],
    )
