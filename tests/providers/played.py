"""Episodes that a model agent plays on a real server, read back from its log."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from railgym import codec
from railgym.actions import Action, Transition
from railgym.agents import Agent, Briefing, Move, play
from railgym.client import Client

BUCKETS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "reasoning")


class Step(NamedTuple):
    """A step as the log has it."""

    turn: int
    action: Action
    seen: Transition


class Played(NamedTuple):
    """An episode as the log has it."""

    steps: list[Step]
    claims: list[dict[str, Any]]

    @property
    def last(self) -> Transition:
        """Of the last step."""
        return self.steps[-1].seen

    @property
    def actions(self) -> list[Action]:
        """In order."""
        return [step.action for step in self.steps]

    @property
    def faults(self) -> list[str | None]:
        """The fault code of every step."""
        return [step.seen.info.get("fault") for step in self.steps]

    @property
    def retries(self) -> list[dict[str, Any]]:
        """Of all calls."""
        return [retry for claim in self.claims for retry in claim["retries"]]

    @property
    def tokens(self) -> dict[str, int]:
        """All tokens that were claimed, those of failed attempts too."""
        usages = [said["usage"] for said in (*self.claims, *self.retries)]
        return add(usage for usage in usages if usage)


class FastTime:
    """A clock whose sleeps are over at once, and are noted."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def __call__(self) -> float:
        return time.monotonic() + sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def played(client: Client, agent: Agent, env_id: str | None, task_id: str | None) -> Played:
    """Plays an episode and writes its claims, as a run does."""
    with client.session(env_id, task_id) as session:
        observation, info = session.reset(seed=0)
        instruction = session.task.instruction if session.task else ""
        briefing = Briefing(instruction, session.env.action_space, observation, info, 0)

        def step(move: Move) -> Transition:
            if move.claim is not None:
                session.claim(move.claim)
            return session.step(move.action, turn=move.turn)

        play(agent(briefing), step)
    return logged(client, f"{session.id}.{session.episode}")


def logged(client: Client, episode_id: str) -> Played:
    """Reads an episode."""
    events = list(client.read_episode(episode_id))
    claims = [e.agent_claim.claim_json for e in events if e.HasField("agent_claim")]
    taken = [event.step_taken for event in events if event.HasField("step_taken")]
    steps = [
        Step(
            step.turn,
            codec.action_from_proto(step.action),
            codec.transition_from_proto(step.transition),
        )
        for step in taken
    ]
    return Played(steps, [json.loads(claim) for claim in claims])


def add(usages: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sums usages by bucket."""
    total = dict.fromkeys(BUCKETS, 0)
    for usage in usages:
        for bucket, tokens in usage.items():
            total[bucket] += tokens
    return total
