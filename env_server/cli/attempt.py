"""An attempt at a trial: one session on the server, from its reset to its end.

What an agent claims of its model goes into the log before the step that came of it, also where no
step does. An attempt that breaks off for no fault of the agent's is closed as "api_error": it says
nothing of the agent, and the trial is to be tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from env_server.scoring.attempts import LABEL
from env_server.scoring.claims import read_call
from railgym.agents import Briefing, ModelFailed, play
from railgym.errors import RailgymError

if TYPE_CHECKING:
    from env_server.cli.agents import AgentFor
    from env_server.cli.trials import Trial
    from railgym.actions import Transition
    from railgym.agents import Agent, Move
    from railgym.client import Client
    from railgym.session import Session


class Stopped(Exception):
    """The run ends before the episode does."""


class TimeIsUp(Exception):
    """The trial has taken as long as it may."""


class Watch(Protocol):
    """Is told what happens, by several threads."""

    def claimed(self, trial: Trial, claim: Mapping[str, Any]) -> None:
        """A model was called, or could not be."""

    def stepped(self, trial: Trial, seen: Transition) -> None:
        """A step was taken."""


class Rules(NamedTuple):
    """What all attempts have in common.

    Attributes:
        run: Label of all sessions.
        time_limit: Seconds, without waiting for a model's provider; None: no limit.
        stopped: Set when attempts are to end at their next step.
    """

    run: str
    time_limit: float | None
    stopped: threading.Event


class Attempts:
    """Plays trials on one client; several threads may do so at once."""

    def __init__(
        self, client: Client, agents: Mapping[str, AgentFor], rules: Rules, watch: Watch
    ) -> None:
        """Takes what attempts need.

        Args:
            client: Of the server.
            agents: By the names that trials use.
            rules: For all of them.
            watch: Is told what happens.
        """
        self._client = client
        self._agents = agents
        self._rules = rules
        self._watch = watch

    def play(self, trial: Trial) -> float:
        """Plays a trial, and returns its last reward; 0 where its time was up."""
        task = trial.target.task
        agent = self._agents[trial.agent](task)
        labels = {"agent": trial.agent, "run": self._rules.run, "trial": str(trial.number)}
        task_id = None if task is None else task.task_id
        labels[LABEL] = trial.key
        env_id, tools = trial.target.env_id, trial.tools
        session = self._client.session(env_id, task_id, labels, tools=tools)
        reason: str | None = "api_error"
        try:
            with _kept(session, self._client):
                reward = _Attempt(session, trial, self._rules, self._watch).play(agent)
            reason = None
        except TimeIsUp:
            reason, reward = "time_limit", 0.0
        finally:
            session.close(reason)
        return reward


@contextmanager
def _kept(session: Session, client: Client) -> Iterator[None]:
    """Renews a session's lease while the block runs: an agent may wait longer for its model."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(session.lease_seconds / 3):
            with suppress(RailgymError):  # whatever it is, the attempt meets it too
                client.resume(session.id)

    threading.Thread(target=renew, daemon=True).start()
    try:
        yield
    finally:
        over.set()


class _Attempt:
    """One attempt, while it runs."""

    def __init__(self, session: Session, trial: Trial, rules: Rules, watch: Watch) -> None:
        self._session = session
        self._trial = trial
        self._rules = rules
        self._watch = watch
        self._since = time.monotonic()
        self._queued = 0.0

    def play(self, agent: Agent) -> float:
        task, seed = self._trial.target.task, self._trial.seed
        observation, info = self._session.reset(seed=seed)
        instruction = "" if task is None else task.instruction
        space = self._session.env.action_space
        self._since = time.monotonic()
        try:
            policy = agent(Briefing(instruction, space, observation, info, seed))
            return play(policy, self._step).reward
        except ModelFailed as e:
            self._claim(e.claim)
            raise

    def _step(self, move: Move) -> Transition:
        self._claim(move.claim)
        if self._rules.stopped.is_set():
            raise Stopped("the run was stopped")
        limit = self._rules.time_limit
        if limit is not None and time.monotonic() - self._since - self._queued > limit:
            raise TimeIsUp
        seen = self._session.step(move.action, turn=move.turn)
        self._watch.stepped(self._trial, seen)
        return seen

    def _claim(self, claim: Mapping[str, Any] | None) -> None:
        if claim is None:
            return
        call = read_call(claim)
        if call is not None and call.queue_ms is not None:
            self._queued += call.queue_ms / 1_000
        self._watch.claimed(self._trial, claim)  # first: it is paid for, whatever comes now
        self._session.claim(claim)
