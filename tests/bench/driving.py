"""What all drivers share: sessions that type as fast as they are answered.

A driver is a process, `python drive_X.py ADDRESS SESSIONS [HOW]`. It opens its sessions and says
"ready"; for each line of stdin, a number of seconds, it lets all sessions type at once for so long
and says how that went in a line of JSON. It ends with its stdin.

So that servers are measured and not clients, messages are bytes made beforehand, and of all
replies only each session's last is read: it must show the whole paper, every letter of it.
"""

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from paper import STEPS, TARGET

AT_ONCE = 100
"""Sessions that are opened at the same time."""


class Typist:
    """A session that types for ever, a letter a step, in episodes of 200 steps.

    Attributes:
        rows: Sessions that it plays in one message.
        taken: Steps of the episode.
    """

    rows = 1

    def __init__(self) -> None:
        self.taken = STEPS
        self._reply: Any = None

    async def begin(self) -> None:
        """Begins an episode."""
        raise NotImplementedError

    async def send(self, place: int) -> Any:
        """Types the letter of this place, and gives the reply as it came."""
        raise NotImplementedError

    def papers(self, reply: Any) -> list[str]:
        """Reads a reply: the paper of each row."""
        raise NotImplementedError

    async def make_ready(self) -> None:
        """Begins an episode where it is time."""
        if self.taken == STEPS:
            await self.begin()
            self.taken = 0

    async def step(self) -> None:
        """Types the next letter."""
        self._reply = await self.send(self.taken)
        self.taken += 1

    def check(self) -> None:
        """Makes sure that the latest reply shows everything that was typed."""
        expected = [TARGET[: self.taken]] * self.rows
        seen = self.papers(self._reply)
        assert seen == expected, f"expected papers of {self.taken} letters, got {seen}"


async def open_all(openings: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Opens sessions, not too many at the same time."""
    opened = []
    for start in range(0, len(openings), AT_ONCE):
        opened += await asyncio.gather(*[one() for one in openings[start : start + AT_ONCE]])
    return opened


async def drive(typists: Sequence[Typist]) -> None:
    """Plays rounds as stdin asks for them."""
    gc.freeze()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await _play(typists, float(line))), flush=True)


async def _play(typists: Sequence[Typist], seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    steps = 0
    begin = time.perf_counter()
    end = begin + seconds

    async def repeat(typist: Typist) -> None:
        nonlocal steps
        while time.perf_counter() < end:
            await typist.make_ready()
            sent = time.perf_counter()
            await typist.step()
            latencies.append(time.perf_counter() - sent)
            steps += typist.rows

    await asyncio.gather(*[repeat(typist) for typist in typists])
    passed = time.perf_counter() - begin
    for typist in typists:
        typist.check()
    cuts = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else latencies * 99
    return {
        "steps": steps,
        "seconds": passed,
        "p50": cuts[49],
        "p99": cuts[98],
    }
