"""Sessions that are not in memory: of some it is known how they ended, others are taken up.

It knows neither how a session is taken up nor the log, only who asks for which one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from env_server.errors import RailgymError, UnknownSession
from env_server.service import caller
from env_server.service.archive import Archive
from env_server.service.ended import Ended, EndedSessions, gone
from env_server.service.session import Session


class Absent:
    """The sessions that a server does not hold."""

    def __init__(
        self,
        archive: Archive,
        lease_seconds: float,
        take_up: Callable[[str], Awaitable[Session]],
    ) -> None:
        """Remembers no end yet.

        Args:
            archive: Knows what stands in the log.
            lease_seconds: To be named where a session has expired.
            take_up: Takes up a session of the log by its id.
        """
        self._archive = archive
        self._lease_seconds = lease_seconds
        self._take_up = take_up
        self._ended = EndedSessions()
        self._at_work: dict[str, asyncio.Task[Session]] = {}

    def add(self, session_id: str, ended: Ended) -> None:
        """Remembers how a session ended."""
        self._ended.add(session_id, ended)

    async def find(self, session_id: str) -> Session:
        """Takes up a session from the log, once for all calls that ask for it meanwhile.

        Raises:
            RailgymError: As `Sessions.find`.
        """
        if (ended := self._ended.find(session_id)) is not None:
            caller.check_tenant(ended.tenant)
            raise gone(session_id, ended, self._lease_seconds)
        try:
            return await asyncio.shield(self._taking_up(session_id))
        except UnknownSession:
            raise
        except RailgymError:
            caller.check_tenant(self._archive.tenant_of(session_id))  # before they are told of it
            raise

    async def session_of(self, tenant: str, request_id: str) -> str | None:
        """The session that a tenant created with this key; None: it is not known."""
        known = self._ended.session_of(tenant, request_id)
        return known or await self._archive.session_of(tenant, request_id)

    def _taking_up(self, session_id: str) -> asyncio.Task[Session]:
        task = self._at_work.get(session_id)
        if task is None:
            task = asyncio.ensure_future(self._take_up(session_id))
            self._at_work[session_id] = task
            task.add_done_callback(lambda done: self._done(session_id, done))
        return task

    def _done(self, session_id: str, task: asyncio.Task[Session]) -> None:
        del self._at_work[session_id]
        if not task.cancelled():
            task.exception()  # seen, even where all who waited for it have gone
