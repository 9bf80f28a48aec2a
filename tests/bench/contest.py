"""The contest: all servers in rounds that take turns, so that each meets the same machine.

Every contestant keeps its sessions open for as long as the contest lasts and is idle while it
waits. Ratios are taken within a round, and a figure is the median of its rounds.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from contestants import Contestant
from processes import Broken, Driver, Process, server

OPEN_SECONDS = 300.0
ROUND_SECONDS = 120.0
"""Of patience beyond the length of a round."""


class Sample(NamedTuple):
    """One round of one contestant.

    Attributes:
        rate: Steps a second.
        p50: Seconds from a request to its reply, the median.
        p99: The same, the 99th percentile.
        cpu: Seconds of the server's processor time a step.
    """

    rate: float
    p50: float
    p99: float
    cpu: float


class Result(NamedTuple):
    """How a contestant did with so many sessions.

    Attributes:
        name: Of the contestant.
        sessions: How many it held.
        samples: One a round.
        memory_kb: What a session added to the server's memory; None: there is no server.
        broken: Why it could not take part, or not to the end; None: it did.
    """

    name: str
    sessions: int
    samples: list[Sample]
    memory_kb: float | None = None
    broken: str | None = None

    def median(self, figure: Callable[[Sample], float]) -> float:
        """The median of a figure over the rounds."""
        return statistics.median(figure(sample) for sample in self.samples)


class _Playing:
    """A contestant whose processes run."""

    def __init__(self, name: str, sessions: int, running: Process | None, drivers: list[Driver]):
        self.name = name
        self.sessions = sessions
        self.samples: list[Sample] = []
        self.memory_kb: float | None = None
        self.broken: str | None = None
        self._server = running
        self._drivers = drivers
        self._before_kb = running.resident_kb() if running else 0

    def play(self, seconds: float) -> Sample:
        """Plays one round."""
        measured = [self._server] if self._server else self._drivers
        before = sum(process.cpu_seconds() for process in measured)
        for driver in self._drivers:
            driver.ask(f"{seconds}")
        played = [driver.played(seconds + ROUND_SECONDS) for driver in self._drivers]
        used = sum(process.cpu_seconds() for process in measured) - before
        steps = sum(one["steps"] for one in played)
        return Sample(
            rate=sum(one["steps"] / one["seconds"] for one in played),
            p50=statistics.median(one["p50"] for one in played),
            p99=max(one["p99"] for one in played),
            cpu=used / steps,
        )

    def weigh(self) -> None:
        """Notes what the sessions have added to the server's memory."""
        if self._server:
            self.memory_kb = (self._server.resident_kb() - self._before_kb) / self.sessions

    def result(self) -> Result:
        """How it did."""
        return Result(self.name, self.sessions, self.samples, self.memory_kb, self.broken)


def hold(
    contestants: Sequence[Contestant], sessions: int, seconds: float, rounds: int, clients: int
) -> list[Result]:
    """Lets all contestants play with so many sessions.

    Args:
        contestants: Who plays.
        sessions: How many each holds.
        seconds: Of a round.
        rounds: How many.
        clients: Processes among which the sessions are divided.
    """
    invited = [one for one in contestants if one.least <= sessions <= one.most]
    absent: list[Result] = []
    with contextlib.ExitStack() as stack:
        playing: list[_Playing] = []
        for contestant in invited:
            try:
                playing.append(_enter(stack, contestant, sessions, clients))
            except Broken as e:
                absent.append(Result(contestant.name, sessions, [], None, f"not available: {e}"))
        _warm_up(playing, min(seconds, 1.0))
        for number in range(rounds):
            first = number % len(playing)
            for one in playing[first:] + playing[:first]:
                _play_round(one, seconds)
        return [one.result() for one in playing] + absent


def _enter(
    stack: contextlib.ExitStack, contestant: Contestant, sessions: int, clients: int
) -> _Playing:
    print(f"  {sessions:,} sessions: {contestant.name}", file=sys.stderr, flush=True)
    running, address = None, "-"
    if contestant.serve is not None:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = contestant.serve(sessions, Path(folder))
        running, address = stack.enter_context(server(command))
    clients = min(clients, sessions // contestant.least) if running else 1
    shares = [sessions // clients + (number < sessions % clients) for number in range(clients)]
    drivers = []
    playing = _Playing(contestant.name, sessions, running, drivers)
    for share in shares:
        driver = Driver([*contestant.drive, address, str(share), *contestant.how])
        stack.callback(driver.end)
        drivers.append(driver)
        driver.await_ready(OPEN_SECONDS)
    return playing


def _warm_up(playing: Sequence[_Playing], seconds: float) -> None:
    for one in playing:
        try:
            one.play(seconds)
            one.weigh()
        except Broken as e:
            one.broken = f"broke: {e}"


def _play_round(one: _Playing, seconds: float) -> None:
    if one.broken is None:
        try:
            one.samples.append(one.play(seconds))
        except Broken as e:
            one.broken = f"broke: {e}"
