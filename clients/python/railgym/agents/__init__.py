"""Agents: whoever picks the actions of an episode.

An agent is one function. It is given a `Briefing` when an episode begins, and returns a policy:
a function that is given the latest transition (None at first) and returns the next action.

    def echo(briefing):
        return lambda seen: railgym.Final(briefing.instruction)

Or it is one class, whose instances are such policies:

    class Typist:
        def __init__(self, briefing):
            self.rest = list(briefing.instruction.split('"')[1])

        def __call__(self, seen):
            if not self.rest:
                return railgym.Final()
            return railgym.call("type_letter", letter=self.rest.pop(0))

`railgym run --agent my_module:Typist` plays either. Agents that ask a model are found by
`railgym.agents.models.find`. A policy that wants its turns, or what it says of its model, to stand
in the log returns a `Move` in place of an action.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
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


class Move(NamedTuple):
    """An action, and what its agent says of it.

    Attributes:
        action: The action.
        turn: The model's turn that held it, from 1; 0: not said.
        claim: Written into the log before the step; JSON values by name. Of a model's turn, the
            first move has the claim of the call that made it, and the others have none.
    """

    action: Action
    turn: int = 0
    claim: Mapping[str, Any] | None = None


Policy: TypeAlias = Callable[[Transition | None], Action | Move]
Agent: TypeAlias = Callable[[Briefing], Policy]


class ModelFailed(Exception):
    """A model could not be asked, or not any more: the trial says nothing of the agent.

    Attributes:
        claim: Of the call that failed, for the log; None: there is nothing to say.
    """

    def __init__(self, message: str, claim: Mapping[str, Any] | None = None) -> None:
        """Keeps the claim beside the message."""
        super().__init__(message)
        self.claim = claim


class RunStopped(ModelFailed):
    """No other trial would fare better, for instance because the key is wrong: the run ends."""


def play(policy: Policy, step: Callable[[Move], Transition]) -> Transition:
    """Lets a policy act until the episode ends.

    Args:
        policy: Picks the actions.
        step: Applies one, in process or over the wire.

    Returns:
        The transition that ended the episode.
    """
    seen: Transition | None = None
    while seen is None or not (seen.terminated or seen.truncated):
        picked = policy(seen)
        seen = step(picked if isinstance(picked, Move) else Move(picked))
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
