"""Trials: which agent tries which task how often, and how each try is played over gRPC.

A trial that fails (the agent raises, the server refuses) is reported and leaves the others alone.
This module scores nothing: that is done from the log.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, NamedTuple, Self

from railgym.agents import Briefing, play

if TYPE_CHECKING:
    from env_server.cli.agents import AgentFor
    from railgym.actions import Action, Transition
    from railgym.agents import Agent
    from railgym.client import Client
    from railgym.records import TaskInfo
    from railgym.session import Session


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
    """

    agent: str
    target: Target
    number: int
    seed: int


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
    return [
        Trial(agent, target, number, _seed(seed, target, number))
        for number in range(1, repeats + 1)
        for target in targets
        for agent in agents
    ]


class Stopped(Exception):
    """The run ends before the episode does."""


class Trials:
    """Plays trials on threads of one client.

    As a context manager: leaving it lets every trial that runs come to its next step, and no
    other begin.
    """

    def __init__(
        self, client: Client, agents: Mapping[str, AgentFor], run: str, concurrency: int
    ) -> None:
        """Starts the threads.

        Args:
            client: Of the server.
            agents: By the names that trials use.
            run: Label of all sessions.
            concurrency: Trials at the same time.
        """
        self._client = client
        self._agents = agents
        self._run = run
        self._pool = ThreadPoolExecutor(concurrency)
        self._stopped = threading.Event()

    def play(self, trials: Iterable[Trial]) -> Iterator[Played]:
        """Plays trials, and yields each as it ends."""
        futures = {self._pool.submit(self._play, trial): trial for trial in trials}
        for future in as_completed(futures):
            error = future.exception()
            yield Played(futures[future], None if error else future.result(), error)

    def __enter__(self) -> Self:
        """Gives itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the threads."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _play(self, trial: Trial) -> float:
        task = trial.target.task
        agent = self._agents[trial.agent](task)
        labels = {"agent": trial.agent, "run": self._run, "trial": str(trial.number)}
        task_id = None if task is None else task.task_id
        with self._client.session(trial.target.env_id, task_id, labels) as session:
            # An agent that cannot go on is no agent that failed: such an episode is not valid.
            reason: str | None = "api_error"
            try:
                last = self._episode(session, trial, agent)
                reason = None
            finally:
                session.close(reason)
        return last.reward

    def _episode(self, session: Session, trial: Trial, agent: Agent) -> Transition:
        def step(action: Action) -> Transition:
            if self._stopped.is_set():
                raise Stopped
            return session.step(action)

        task = trial.target.task
        observation, info = session.reset(seed=trial.seed)
        instruction = "" if task is None else task.instruction
        space = session.env.action_space
        return play(agent(Briefing(instruction, space, observation, info, trial.seed)), step)


def _seed(seed: int, target: Target, number: int) -> int:
    """A seed of 32 bits, which differs for each target and trial and for nothing else."""
    digest = hashlib.sha256(f"{seed}/{target.name}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
