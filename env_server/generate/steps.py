"""The way to a goal in an environment with tools, played while it is written down.

What was called on the way is the gold solution of a task. It knows no environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from env_server.arguments import canonical_json
from env_server.env import ToolEnv

T = TypeVar("T")


class Unfit(Exception):
    """A drawn world does not hold what a task is about."""


class Found(NamedTuple):
    """A value that was come to: what call `step` returned at `path`."""

    value: Any
    step: int
    path: tuple[str | int, ...] = ()

    def part(self, *path: str | int) -> Found:
        """A part of the value."""
        value = self.value
        for key in path:
            value = value[key]
        return Found(value, self.step, (*self.path, *path))

    def parts(self) -> list[Found]:
        """Each item of a list."""
        return [self.part(place) for place in range(len(self.value))]


class Steps:
    """Calls tools, and keeps the calls as they stand in the gold solution of a task."""

    def __init__(self, env: ToolEnv) -> None:
        """Begins in an environment that was just reset."""
        self.calls: list[dict[str, Any]] = []
        self._env = env
        self._known: dict[str, Found] = {}

    def ask(self, tool: str, **arguments: Found | int | str) -> Found:
        """Calls a tool, unless the same call was made before."""
        plain = {k: v.value if isinstance(v, Found) else v for k, v in arguments.items()}
        key = canonical_json([tool, plain])
        if key not in self._known:
            result = self._env.TOOLS[tool].method(self._env, **plain)
            written = {k: _reference(v) for k, v in arguments.items()}
            self.calls.append({"tool": tool, "arguments": written})
            self._known[key] = Found(result, len(self.calls))
        return self._known[key]


class Draw:
    """Draws what a task is about."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Draws from a generator."""
        self._rng = rng

    def pick(self, pool: Iterable[T]) -> T:
        """Draws one item.

        Raises:
            Unfit: There is none.
        """
        return self.pick_some(pool, 1)[0]

    def pick_some(self, pool: Iterable[T], count: int) -> list[T]:
        """Draws different items.

        Raises:
            Unfit: There are not so many.
        """
        items = list(pool)
        if len(items) < count:
            raise Unfit(f"{count} items wanted, {len(items)} there")
        return [items[int(place)] for place in self._rng.permutation(len(items))[:count]]

    def between(self, fewest: int, most: int) -> int:
        """Draws a whole number, both bounds included."""
        return int(self._rng.integers(fewest, most + 1))


def _reference(argument: Found | int | str) -> Any:
    if not isinstance(argument, Found):
        return argument
    reference: dict[str, Any] = {"$step": argument.step}
    return {**reference, "path": list(argument.path)} if argument.path else reference
