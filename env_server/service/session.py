"""One session: who may use its environment when, and for how long.

Calls take turns, and any of them renews the lease. What they do is done by the `Player`. It knows
no gRPC and no other session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from env_server.service.ended import Ended, gone
from env_server.service.fork import copy
from env_server.service.player import Player
from railgym.v1 import episode_pb2, space_pb2

Result = TypeVar("Result")


class Session:
    """A live environment held for one client.

    Attributes:
        session_id: Unguessable.
        player: Plays its episodes. Only to be looked at; what changes it goes through the session.
        request_id: The client's own key for the creation; empty: none.
        ended: How it ended; None: it lives.
    """

    def __init__(self, session_id: str, player: Player, request_id: str) -> None:
        """Makes a session whose lease has yet to begin."""
        self.session_id = session_id
        self.player = player
        self.request_id = request_id
        self.ended: Ended | None = None
        self._lease_seconds = 0.0
        self._deadline = 0.0  # of the lease, on the monotonic clock
        self._lock = asyncio.Lock()

    @property
    def env_id(self) -> str:
        """The environment that it was opened for."""
        return self.player.opening.entry.env_id

    def renew(self, lease_seconds: float) -> None:
        """Begins the lease anew."""
        self._lease_seconds = lease_seconds
        self._deadline = time.monotonic() + lease_seconds

    @property
    def expired(self) -> bool:
        """Whether the lease is over. A session with a call at work is not idle."""
        return self._deadline < time.monotonic() and not self._lock.locked()

    def expires_at(self) -> float:
        """When the lease ends, in seconds since 1970."""
        return time.time() + self._deadline - time.monotonic()

    async def reset(
        self, number: int, seed: int | None, options: dict[str, Any]
    ) -> tuple[int, episode_pb2.EpisodeStarted]:
        """Begins an episode: see `Player.reset`."""
        return await self._alone(lambda: self.player.reset(number, seed, options))

    async def step(
        self, episode: int, number: int, received: episode_pb2.Action, turn: int = 0
    ) -> episode_pb2.Transition:
        """Takes a step of the latest episode: see `Player.step`."""
        return await self._alone(lambda: self.player.step(episode, number, received, turn))

    async def render(self) -> space_pb2.Value:
        """Shows the state: see `Player.render`."""
        return await self._alone(self.player.render)

    async def fork_into(self, child: Session, step: int | None) -> None:
        """Copies the latest episode into a session that nobody knows yet: see `fork.copy`."""
        await self._alone(lambda: copy(self.player, child.player, step))

    def claim(self, claim_json: str) -> None:
        """Notes what the client says of its agent: see `Player.claim`."""
        self._check_open()
        self.player.claim(claim_json)

    async def close(self, reason: str) -> None:
        """Ends the running episode and the session; one that has ended stays as it is."""
        async with self._lock:
            if self.ended is None:
                self.player.close(reason)
                tenant = self.player.opening.tenant
                self.ended = Ended(time.time(), reason, self.request_id, tenant)

    def _alone(self, work: Callable[[], Awaitable[Result]]) -> Awaitable[Result]:
        """Does work on the session, one at a time, to its end even where the caller gives up.

        What foreign code does goes on without the caller, and must come into the log.
        """
        turn = self._in_turn(work)
        return asyncio.shield(turn) if self.player.opening.entry.is_foreign else turn

    async def _in_turn(self, work: Callable[[], Awaitable[Result]]) -> Result:
        async with self._lock:
            self._check_open()
            try:
                return await work()
            finally:
                self.renew(self._lease_seconds)

    def _check_open(self) -> None:
        if self.ended is not None:
            raise gone(self.session_id, self.ended, self._lease_seconds)
