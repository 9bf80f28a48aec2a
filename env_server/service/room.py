"""How many sessions there may be at once: on the server, and of each tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from env_server.errors import Draining, QuotaExceeded, TooManySessions


class Room:
    """Counts sessions, and says when there are enough.

    Attributes:
        capacity: Most sessions at once.
    """

    def __init__(self, capacity: int, quotas: Mapping[str, int]) -> None:
        """Begins empty.

        Args:
            capacity: Most sessions at once.
            quotas: Most sessions at once by tenant; who is not named has no limit of its own.
        """
        self.capacity = capacity
        self._quotas = quotas
        self._count = 0
        self._held: Counter[str] = Counter()
        self._is_shut = False

    def check(self, tenant: str) -> None:
        """Makes sure that there is room for one more.

        Raises:
            Draining: The server is stopping.
            QuotaExceeded: The tenant holds as many as it may.
            TooManySessions: The server is full.
        """
        if self._is_shut:
            raise Draining("the server is stopping and takes no new sessions")
        held, quota = self._held[tenant], self._quotas.get(tenant)
        if quota is not None and held >= quota:
            raise QuotaExceeded(
                f"tenant {tenant} holds {held} sessions of at most {quota}; close one",
                tenant=tenant,
                current=held,
                max=quota,
            )
        if self._count >= self.capacity:
            raise TooManySessions(
                f"the server holds {self._count} sessions of at most {self.capacity}; "
                "close one, or come back later",
                current=self._count,
                max=self.capacity,
            )

    def take(self, tenant: str) -> None:
        """Counts one more, if there is room: see `check`."""
        self.check(tenant)
        self._count += 1
        self._held[tenant] += 1

    def shut(self) -> None:
        """Lets nobody in any more."""
        self._is_shut = True

    def leave(self, tenant: str) -> None:
        """Counts one less."""
        self._count -= 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
