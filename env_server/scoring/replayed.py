"""A replayed episode beside the gold solution of its task: what metrics and fault rules look at.

Everything here was recomputed; nothing comes from a log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from env_server.arguments import canonical_json
from env_server.env import FaultCode, ToolEnv
from env_server.episode import Episode, Reply
from env_server.errors import RailgymError
from env_server.gold import GoldError, play_gold
from env_server.registry import Registry
from env_server.shaping import toolbox
from env_server.tasks import Task
from env_server.validators import CallRecord


class Gold(NamedTuple):
    """The gold solution of a task, played.

    Attributes:
        calls: Its calls, in order.
        observations: What each step showed.
        states: State hash before the first step, then after each step.
    """

    calls: Sequence[CallRecord]
    observations: Sequence[str]
    states: Sequence[bytes]

    @property
    def steps(self) -> int:
        """Steps of the solution, the final answer included."""
        return len(self.observations)

    @property
    def changes_state(self) -> bool:
        """Whether it leaves another state than it found, at any step."""
        return len(set(self.states)) > 1


class GoldBook:
    """The gold solutions of tasks, each played once."""

    def __init__(self, registry: Registry) -> None:
        """Makes an empty book of the registry's tasks."""
        self._registry = registry
        self._played: dict[str, Gold | None] = {}

    def find(self, episode: Episode) -> Gold | None:
        """Finds the gold solution that an episode can be measured by.

        Returns:
            None without a task, where the solution cannot be played, and where the episode began
            from another state than the solution.
        """
        task = episode.spec.task
        if task is None:
            return None
        if task.sha256 not in self._played:
            self._played[task.sha256] = self._play(task)
        gold = self._played[task.sha256]
        if gold is None or gold.states[0] != episode.start.state_hash:
            return None
        return gold

    def _play(self, task: Task) -> Gold | None:
        try:
            episode, replies = play_gold(task, self._registry)
        except (GoldError, RailgymError):
            return None  # for lint to report; such a task has a success all the same
        observations = [reply.transition.observation for reply in replies]
        states = [episode.start.state_hash, *(reply.state_hash for reply in replies)]
        return Gold(episode.calls, observations, states)


class Replayed:
    """An episode that was run again.

    Attributes:
        episode: After its last step.
        replies: The reply to each step.
        gold: What it is measured by; None where nothing fits.
    """

    def __init__(self, episode: Episode, replies: Sequence[Reply], gold: Gold | None) -> None:
        """Puts an episode and its gold solution side by side."""
        self.episode = episode
        self.replies = replies
        self.gold = gold

    @property
    def task(self) -> Task | None:
        """The task, or None."""
        return self.episode.spec.task

    @property
    def success(self) -> bool:
        """Whether every validator held at the end; False where the end was never judged."""
        verdict = self.episode.verdict
        return verdict is not None and all(verdict.values())

    @property
    def answer_holds(self) -> bool | None:
        """Whether every validator of the answer held; None where the task has none."""
        if self.task is None:
            return None
        rules = {rule["name"] for rule in self.task.validators}
        names = {name for name in rules if name.startswith("answer_")}
        if self.task.required_fields:
            names.add("required_fields")
        verdict = self.episode.verdict or {}
        return all(verdict.get(name, False) for name in names) if names else None

    @cached_property
    def faults(self) -> dict[int, FaultCode]:
        """The fault code of each step that has one; a plain environment knows none."""
        if not isinstance(self.episode.env, ToolEnv):
            return {}
        codes = (reply.transition.info.get("fault") for reply in self.replies)
        return {step: code for step, code in enumerate(codes, start=1) if code is not None}

    @cached_property
    def distracted(self) -> set[int]:
        """Steps that called a tool of another domain, see `shaping`."""
        box = toolbox(type(self.episode.env), self.episode.spec.shaping)
        calls = self.episode.calls
        return {call.step for call in calls if box.is_distractor(box.shown(call.name))}

    @cached_property
    def repeated(self) -> list[int]:
        """Steps whose call was made before, with equal arguments and in the same state.

        Such a call can only bring the reply that the agent already has. Calls whose arguments
        could not be read do not count: they are faults.
        """
        alike: dict[tuple[str, bytes], list[CallRecord]] = defaultdict(list)
        for call in self.episode.calls:
            if call.arguments is not None:
                alike[call.name, self.state_before(call.step)].append(call)
        steps: list[int] = []
        for calls in alike.values():
            seen: set[str] = set()
            for call in calls if len(calls) > 1 else ():
                arguments = canonical_json(call.arguments)
                if arguments in seen:
                    steps.append(call.step)
                seen.add(arguments)
        return sorted(steps)

    def state_before(self, step: int) -> bytes:
        """State hash before a step."""
        return self.replies[step - 2].state_hash if step > 1 else self.episode.start.state_hash
