"""Agents: whoever picks the actions of an episode.

An agent is one function. It is given a `Briefing` when an episode begins, and returns a policy:
a function that is given the latest transition (None at first) and returns the next action.

    def echo(briefing):
        return lambda seen: railgym.Final(briefing.instruction)
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np

from railgym.actions import Action, Final, Plain, Transition
from railgym.spaces import ToolSpace


class Briefing(NamedTuple):
    """What an agent is told when an episode begins.

    Attributes:
        instruction: The goal in words; empty without a task.
        action_space: What can be done.
        observation: The first observation.
        info: Gymnasium's info of the reset.
        seed: For the agent's own randomness.
    """

    instruction: str
    action_space: gymnasium.Space[Any]
    observation: Any
    info: dict[str, Any]
    seed: int


Policy: TypeAlias = Callable[[Transition | None], Action]
Agent: TypeAlias = Callable[[Briefing], Policy]


def play(policy: Policy, step: Callable[[Action], Transition]) -> Transition:
    """Lets a policy act until the episode ends.

    Args:
        policy: Picks the actions.
        step: Applies one, in process or over the wire.

    Returns:
        The transition that ended the episode.
    """
    seen: Transition | None = None
    while seen is None or not (seen.terminated or seen.truncated):
        seen = step(policy(seen))
    return seen


def idle(briefing: Briefing) -> Policy:
    """Does nothing: answers at once, with nothing (in a plain environment, acts at random)."""
    if isinstance(briefing.action_space, ToolSpace):
        return lambda seen: Final("")
    return random(briefing)


def random(briefing: Briefing) -> Policy:
    """Draws every action from the space; one in eight is an answer of random letters."""
    generator = np.random.default_rng(briefing.seed)
    space = briefing.action_space
    space.seed(int(generator.integers(2**31)))

    def act(seen: Transition | None) -> Action:
        if not isinstance(space, ToolSpace):
            return Plain(space.sample())
        if generator.random() < 1 / 8:
            letters = generator.integers(26, size=5)
            return Final("".join(string.ascii_lowercase[i] for i in letters))
        return space.sample()

    return act


def scripted(actions: list[Action]) -> Agent:
    """An agent that plays a list of actions, and answers with nothing where that ends."""

    def agent(briefing: Briefing) -> Policy:
        rest = iter(actions)
        return lambda seen: next(rest, Final(""))

    return agent
