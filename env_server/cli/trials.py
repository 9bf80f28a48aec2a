"""Trials: which agent tries which task how often, and the threads that play them.

A trial that fails (the agent raises, the server refuses) is reported and leaves the others alone.
This module scores nothing: that is done from the log.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Self

from railgym.agents import RunStopped
from railgym.spaces import AS_THEY_ARE, ToolShaping

if TYPE_CHECKING:
    from railgym.records import TaskInfo

STOP_SECONDS = 10.0
"""For trials to come to their next step, at the end."""


class Target(NamedTuple):
    """What is tried: a task, or an environment without one."""

    env_id: str
    task: TaskInfo | None

    @property
    def name(self) -> str:
        """The id of the task, or else of the environment."""
        return self.env_id if self.task is None else self.task.task_id


class Trial(NamedTuple):
    """One agent's try at one target.

    Attributes:
        agent: Its name.
        target: What it tries.
        number: From 1.
        seed: For the environment and for the agent: the same for every agent.
        tools: How the environment's tools are shown.
        key: What its result depends on, see `env_server.cli.keys`.
    """

    agent: str
    target: Target
    number: int
    seed: int
    tools: ToolShaping = AS_THEY_ARE
    key: str = ""


class Played(NamedTuple):
    """What came of a trial.

    Attributes:
        trial: The trial.
        reward: Of the last step, as the server said; None where it came to no end.
        error: Why it came to no end.
    """

    trial: Trial
    reward: float | None
    error: BaseException | None


def plan(agents: Iterable[str], targets: Iterable[Target], repeats: int, seed: int) -> list[Trial]:
    """All trials, in an order in which every agent soon has tried something."""
    every = list(targets)
    names = list(agents)
    return [
        Trial(agent, target, number, _seed(seed, target, number))
        for number in range(1, repeats + 1)
        for target in every
        for agent in names
    ]


class Pool:
    """Plays trials on threads.

    As a context manager: leaving it lets every trial that runs come to its next step, and no
    other begin. The threads do not outlive the process: a model that does not answer cannot hold
    it up.

    Attributes:
        stopped: Set when trials are to end at their next step.
    """

    def __init__(self, may_begin: Callable[[], bool]) -> None:
        """Makes a pool that has not begun.

        Args:
            may_begin: Whether another trial may begin.
        """
        self.stopped = threading.Event()
        self._may_begin = may_begin
        self._closed = threading.Event()
        self._done: queue.SimpleQueue[Played | None] = queue.SimpleQueue()
        self._taking = threading.Lock()
        self._threads: list[threading.Thread] = []

    def play(
        self, trials: Iterable[Trial], attempt: Callable[[Trial], float], concurrency: int
    ) -> Iterator[Played]:
        """Plays trials, and yields each as it ends.

        Where an agent stops the run no more begin, and those that run come to their end.

        Args:
            trials: In the order in which they begin.
            attempt: Plays one and returns its last reward; several threads call it at once.
            concurrency: Most trials at the same time.
        """
        rest = iter(trials)
        for _ in range(concurrency):
            thread = threading.Thread(target=self._work, args=(rest, attempt), daemon=True)
            self._threads.append(thread)
            thread.start()
        at_work = concurrency
        while at_work:
            played = self._done.get()
            if played is None:
                at_work -= 1
            else:
                yield played

    def __enter__(self) -> Self:
        """Gives itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the threads."""
        self._closed.set()
        self.stopped.set()
        until = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self, rest: Iterator[Trial], attempt: Callable[[Trial], float]) -> None:
        try:
            while (trial := self._next(rest)) is not None:
                self._done.put(self._played(trial, attempt))
        finally:
            self._done.put(None)

    def _next(self, rest: Iterator[Trial]) -> Trial | None:
        with self._taking:
            if self._closed.is_set() or not self._may_begin():
                return None
            return next(rest, None)

    def _played(self, trial: Trial, attempt: Callable[[Trial], float]) -> Played:
        try:
            return Played(trial, attempt(trial), None)
        except RunStopped as e:
            self._closed.set()
            return Played(trial, None, e)
        except BaseException as e:
            # An agent may raise anything, a CancelledError for instance: it is told, and costs
            # this trial alone.
            return Played(trial, None, e)


def _seed(seed: int, target: Target, number: int) -> int:
    """A seed of 32 bits, which differs for each target and trial and for nothing else."""
    digest = hashlib.sha256(f"{seed}/{target.name}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
