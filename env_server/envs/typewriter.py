"""Type a given text one letter at a time.

State is the paper, and the only move is to add a letter, so that a wrong letter can never be
taken back. `Typewriter` has one tool that takes the letter; `TypewriterKeys` has 26 tools, one a
key; `TypewriterPolicy` is the second one for policies: a Discrete action, a Box to look at.
"""

from __future__ import annotations

import string
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from pydantic import Field

from env_server.env import Options, Tool, ToolEnv, ToolError, Transition, read_options, tool

MAX_TARGET = 1_000


class PaperOptions(Options):
    """What to type, and when the episode ends."""

    target: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_TARGET,
        description="Text to type. Default: 3 to 8 lower-case letters drawn from the seed.",
    )
    finish: Literal["goal", "final"] = Field(
        default="goal",
        description=(
            "'goal': ends when the paper equals the target (reward 1) or with the first wrong "
            "letter (reward 0). 'final': ends with the agent's final answer, so that it must know "
            "by itself when to stop."
        ),
    )


class PolicyOptions(Options):
    """What to type; a policy has no final answer, so that the paper alone ends the episode."""

    target: str | None = Field(
        default=None,
        pattern="^[a-z]{1,16}$",
        description=(
            "Text to type, 1 to 16 letters a to z. Default: 3 to 8 letters drawn from the seed."
        ),
    )


class _Paper(ToolEnv):
    """A sheet of paper and a text to type on it."""

    OPTIONS = PaperOptions
    MAX_STEPS: ClassVar[int] = MAX_TARGET + 1
    options: PaperOptions

    def _begin(self) -> str:
        self.paper = ""
        self.target = self.options.target or draw_word(self.np_random)
        return self.paper

    def state(self) -> dict[str, str]:
        """The paper."""
        return {"paper": self.paper}

    def reference(self, expression: str) -> str:
        """Knows one expression, "target": the text to type."""
        if expression != "target":
            raise ValueError(f"expected the expression 'target', got {expression!r}")
        return self.target

    def render(self) -> str:
        """The paper over the text to type."""
        return f"paper : {self.paper}_\ntarget: {self.target}"

    def _type(self, letter: str) -> str:
        if len(self.paper) >= MAX_TARGET:
            raise ToolError(f"the paper is full: it holds {MAX_TARGET:,} characters")
        self.paper += letter
        return self.paper

    def _outcome(self, answered: bool) -> tuple[float, bool]:
        done = self.paper == self.target
        if self.options.finish == "final":
            return float(done and answered), answered
        return float(done), done or answered or not self.target.startswith(self.paper)


class Typewriter(_Paper):
    """Type the target with one tool, `type_letter`, which returns the paper."""

    @tool
    def type_letter(self, letter: str) -> str:
        """Types one character at the end of the paper and returns what the paper then holds.

        Args:
            letter: Exactly one character.
        """
        if len(letter) != 1:
            raise ToolError(f"letter must be one character, got {len(letter)}")
        return self._type(letter)


def _key(letter: str) -> Tool:
    def press(self: _Paper) -> str:
        return self._type(letter)

    press.__doc__ = f"Types the letter {letter} at the end of the paper and returns the paper."
    return Tool(press, name=letter)


class TypewriterKeys(_Paper):
    """Type the target with 26 tools, `a` to `z`, none of which takes an argument."""

    TOOLS: ClassVar[dict[str, Tool]] = {letter: _key(letter) for letter in string.ascii_lowercase}


class TypewriterPolicy(gymnasium.Env[np.ndarray[Any, Any], np.int64]):
    """`TypewriterKeys` for policies.

    The action is a key, 0 for a to 25 for z. The observation has the shape (2, 16) and the type
    uint8: the target and the paper, 0 for no letter, 1 for a to 26 for z.
    """

    LENGTH: ClassVar[int] = 16
    OPTIONS = PolicyOptions
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        """Makes an environment that awaits its reset.

        Args:
            render_mode: "ansi" or None.
        """
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(26)
        self.observation_space = gymnasium.spaces.Box(0, 26, (2, self.LENGTH), np.uint8)
        self._keys = TypewriterKeys()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: Sets the generator; None goes on with it.
            options: By name, as `OPTIONS` says.

        Raises:
            BadOptions: An option is unknown or wrong.
        """
        asked = read_options(PolicyOptions, options)
        super().reset(seed=seed)
        self._keys.np_random = self.np_random
        self._keys.reset(options={"target": asked.target})
        return self._look(), {}

    def step(self, action: np.int64) -> Transition:
        """Presses a key.

        Args:
            action: 0 to 25.
        """
        seen = self._keys.run(self._keys.TOOLS[string.ascii_lowercase[action]].read("{}"))
        return seen._replace(observation=self._look(), info={})

    def state_hash(self) -> bytes:
        """SHA-256 over the paper (32 bytes)."""
        return self._keys.state_hash()

    def render(self) -> str:
        """The paper over the text to type."""
        return self._keys.render()

    def _look(self) -> np.ndarray[Any, Any]:
        seen = np.zeros((2, self.LENGTH), np.uint8)
        for row, text in enumerate((self._keys.target, self._keys.paper)):
            letters = [ord(letter) - ord("a") + 1 for letter in text[: self.LENGTH]]
            seen[row, : len(letters)] = letters
        return seen


def draw_word(rng: np.random.Generator) -> str:
    """Draws 3 to 8 lower-case letters."""
    letters = rng.integers(26, size=int(rng.integers(3, 9)))
    return "".join(string.ascii_lowercase[i] for i in letters)
