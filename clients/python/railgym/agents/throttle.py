"""How many calls of one model may be out at once, found out as the run goes on.

It begins with few. While answers come well and calls have to wait, one more is let out for every
answer; from the first time that the provider asks to slow down on, one more for every round of
answers. Each time it asks, the number is halved. The time that it asks to wait holds for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

START = 3
"""Calls at once at the beginning: the smallest tier of most providers bears that."""

MAXIMUM = 64
"""Calls at once: beyond, threads of one process wait for one another and not for the provider."""


class Throttle:
    """Lets calls out. Threads share it.

    Attributes:
        maximum: That `limit` never exceeds.
        trouble: What a call has met that is to be sent again, in words; empty: all goes well.
    """

    def __init__(self, maximum: int = MAXIMUM, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins with `START`.

        Args:
            maximum: That `limit` never exceeds.
            clock: Seconds.

        Raises:
            ValueError: The maximum is below 1.
        """
        if maximum < 1:
            raise ValueError(f"expected a maximum of at least 1, got {maximum}")
        self.maximum = maximum
        self.trouble = ""
        self._clock = clock
        self._limit = min(START, maximum)
        self._out = 0
        self._waiting = 0
        self._good = 0
        self._slowed = 0
        self._opens = clock()
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """Most calls at once, as of now."""
        return self._limit

    @property
    def waiting(self) -> int:
        """Calls that wait for their turn, as of now."""
        return self._waiting

    @contextmanager
    def slot(self) -> Iterator[Slot]:
        """Waits for its turn, and lets one call out for as long as the block runs."""
        with self._changed:
            self._waiting += 1
            try:
                while (wait := self._opens - self._clock()) > 0 or self._out >= self._limit:
                    self._changed.wait(wait if wait > 0 else None)
            finally:
                self._waiting -= 1
            self._out += 1
            slot = Slot(self, self._slowed)
        try:
            yield slot
        finally:
            with self._changed:
                self._out -= 1
                self._changed.notify_all()

    def _grow(self) -> None:
        """Notes a good answer. Where no call waits, nobody knows whether more would go well."""
        with self._changed:
            if not self._waiting:
                return
            self._good += 1
            if self._good >= (self._limit if self._slowed else 1):
                self._good = 0
                self._limit = min(self._limit + 1, self.maximum)
                self._changed.notify_all()

    def _shrink(self, slowed: int, seconds: float) -> None:
        """Halves the limit, once for all calls that were out together."""
        with self._changed:
            self._opens = max(self._opens, self._clock() + seconds)
            if slowed == self._slowed:
                self._slowed += 1
                self._good = 0
                self._limit = max(1, self._limit // 2)


class Slot:
    """One call that is out."""

    def __init__(self, throttle: Throttle, slowed: int) -> None:
        """Remembers how often the throttle had been slowed when the call went out."""
        self._throttle = throttle
        self._slowed = slowed

    def went_well(self) -> None:
        """The call was answered."""
        self._throttle._grow()

    def slow_down(self, seconds: float) -> None:
        """The provider has too much to do.

        Args:
            seconds: For which no other call goes out; 0: it does not say.
        """
        self._throttle._shrink(self._slowed, seconds)
