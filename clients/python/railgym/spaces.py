"""The action space of tool environments: tools with JSON Schemas.

It knows nothing of gRPC; `railgym.codec` carries it over the wire.
"""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from railgym.actions import Final, NoAction, Text, ToolAction, ToolCall

JSON_CHARSET = frozenset(string.digits + string.ascii_letters + string.punctuation + " ")
"""Every character that canonical JSON text can hold."""

MAX_OBSERVATION = 64 * 1024
"""Characters of one JSON observation."""


class ToolSpec(NamedTuple):
    """One tool, as a model is told of it.

    Attributes:
        name: At most 64 of `[A-Za-z0-9_-]`.
        description: What it does.
        parameters: JSON Schema of the arguments: an object that allows no property that it does
            not name.
    """

    name: str
    description: str
    parameters: dict[str, Any]


class ToolShaping(NamedTuple):
    """What a session shows of its tools instead of what they are; they do the same as ever.

    Attributes:
        distractors: Tools of other domains among them, 0 to 24; a call to one changes nothing.
        renamed: Whether names mean nothing.
        seed: Which distractors, at which places, and which names; 0 to 2**64 - 1.
    """

    distractors: int = 0
    renamed: bool = False
    seed: int = 0

    def __str__(self) -> str:
        """In words, for instance "5 distractors, renamed"; empty: as they are."""
        plural = "" if self.distractors == 1 else "s"
        parts = [f"{self.distractors} distractor{plural}"] if self.distractors else []
        return ", ".join([*parts, "renamed"] if self.renamed else parts)


AS_THEY_ARE = ToolShaping()
"""The tools are shown as they are."""

MAX_DISTRACTORS = 24


class ToolSpace(gymnasium.Space[ToolAction]):
    """All that an agent can do in a tool environment.

    `contains` takes a call with any name and any text, a raw text, a final answer and a turn
    without action: what is wrong with one of them is answered by the environment. `sample` draws
    a call to one of the tools with arguments that fit its schema.
    """

    def __init__(self, tools: Sequence[ToolSpec], seed: int | None = None) -> None:
        """Makes a space of these tools, in this order."""
        super().__init__(shape=None, dtype=None, seed=seed)
        self.tools = tuple(tools)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text does not flatten into an array."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> ToolCall:
        """Draws a tool and arguments that fit its schema.

        Args:
            mask: Not supported.
            probability: Not supported.

        Raises:
            ValueError: A mask or a probability was given.
        """
        if mask is not None or probability is not None:
            raise ValueError("a ToolSpace takes neither mask nor probability")
        tool = self.tools[int(self.np_random.integers(len(self.tools)))]
        return ToolCall(tool.name, json.dumps(_sample(tool.parameters, self.np_random)))

    def contains(self, x: Any) -> bool:
        """Whether `x` is an action of a tool environment."""
        return isinstance(x, ToolCall | Text | Final | NoAction) and all(
            isinstance(field, str) for field in x
        )

    def __repr__(self) -> str:
        """Names the tools."""
        return f"ToolSpace({', '.join(tool.name for tool in self.tools)})"

    def __eq__(self, other: object) -> bool:
        """Spaces of the same tools in the same order are equal."""
        return isinstance(other, ToolSpace) and self.tools == other.tools


def json_text_space() -> gymnasium.spaces.Text:
    """The observation space of tool environments: canonical JSON text."""
    return gymnasium.spaces.Text(max_length=MAX_OBSERVATION, min_length=2, charset=JSON_CHARSET)


def _sample(schema: dict[str, Any], rng: np.random.Generator) -> Any:
    """Draws a JSON value that fits a schema of the kinds that tools use."""
    if "enum" in schema:
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    if "anyOf" in schema:
        return _sample(schema["anyOf"][int(rng.integers(len(schema["anyOf"])))], rng)
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: _sample(field, rng) for name, field in fields.items()}
        case "array":
            return [_sample(schema["items"], rng) for _ in range(int(rng.integers(4)))]
        case "integer":
            low = schema.get("minimum", min(-5, schema.get("maximum", -5)))
            high = schema.get("maximum", max(50, low))
            return int(rng.integers(low, high, endpoint=True))
        case "number":
            return round(float(rng.uniform(-10, 10)), 3)
        case "boolean":
            return bool(rng.integers(2))
        case "null":
            return None
        case _:
            length = int(rng.integers(1, 4))
            letters = rng.integers(len(string.ascii_lowercase), size=length)
            return "".join(string.ascii_lowercase[i] for i in letters)
