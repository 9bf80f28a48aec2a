"""The tools that an agent is shown: those of an environment, or what a run makes of them.

Distractors are tools of other domains among them. Renamed tools bear names that mean nothing, in
their descriptions and in what goes wrong with a call too. What an agent calls is led back to the
tool that it stands for, so that tasks, metrics and gold solutions know nothing of all this.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from env_server.arguments import canonical_json
from env_server.distractors import DISTRACTORS
from env_server.tools import Tool
from railgym.spaces import AS_THEY_ARE, ToolShaping, ToolSpec


class Toolbox:
    """Tools as they are shown.

    Attributes:
        tools: By the name that is shown, in the order in which they are.
    """

    def __init__(self, tools: Mapping[str, Tool], shaping: ToolShaping = AS_THEY_ARE) -> None:
        """Shapes the tools of an environment; equal arguments give equal toolboxes.

        Args:
            tools: By name.
            shaping: How. Fewer distractors are shown where tools of the environment have their
                names.
        """
        rng = np.random.default_rng(shaping.seed)
        order = _with_distractors(list(tools.values()), shaping.distractors, rng)
        names = {tool.name: tool.name for tool in order}
        if shaping.renamed:
            numbers = rng.permutation(len(order)) + 1
            names = {t.name: f"tool_{n:02}" for t, n in zip(order, numbers, strict=True)}
        self._words = _words(names) if shaping.renamed else None
        self._names = names
        self._own = frozenset(tools)
        self._origins = {shown: name for name, shown in names.items()}
        self.tools = {names[tool.name]: self._shown(tool) for tool in order}

    def origin(self, shown: str) -> str:
        """The tool's own name for a name that is shown; any other name stands for itself."""
        return self._origins.get(shown, shown)

    def shown(self, name: str) -> str:
        """The name under which a tool is shown."""
        return self._names.get(name, name)

    def is_distractor(self, shown: str) -> bool:
        """Whether it is a tool of another domain."""
        return shown in self.tools and self.origin(shown) not in self._own

    def reworded(self, text: str) -> str:
        """A text for the agent, with the names of tools as they are shown.

        Only names with an underscore are replaced: others may be words.
        """
        if self._words is None:
            return text
        return self._words.sub(lambda found: self._names[found[0]], text)

    def _shown(self, tool: Tool) -> Tool:
        if self._names[tool.name] == tool.name:
            return tool
        shown = copy.copy(tool)
        shown.name, shown.description = self._names[tool.name], self.reworded(tool.description)
        parameters = self._reworded_all(tool.spec.parameters)
        shown.spec = ToolSpec(shown.name, shown.description, parameters)
        return shown

    def _reworded_all(self, schema: Any) -> Any:
        """A schema whose descriptions name tools as they are shown."""
        if isinstance(schema, list):
            return [self._reworded_all(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        return {
            key: self.reworded(value)
            if key == "description" and isinstance(value, str)
            else self._reworded_all(value)
            for key, value in schema.items()
        }


def toolbox(cls: object, shaping: ToolShaping) -> Toolbox:
    """The tools of a class of environments as they are shown; none for a plain environment."""
    return _toolbox(cls, shaping)


def tools_for(
    cls: object, allowed: tuple[str, ...], shaping: ToolShaping = AS_THEY_ARE
) -> list[ToolSpec]:
    """What an agent is told of the tools of an environment; nothing of a plain one.

    Args:
        cls: The class of the environment.
        allowed: Its tools that a task allows, by their own names; empty: all.
        shaping: How they are shown.
    """
    box = toolbox(cls, shaping)
    return [
        tool.spec
        for shown, tool in box.tools.items()
        if not allowed or box.origin(shown) in allowed or box.is_distractor(shown)
    ]


def tools_sha256(cls: object, allowed: tuple[str, ...], shaping: ToolShaping) -> str:
    """Digest of names, descriptions and schemas (hex), as `tools_for`; empty without tools."""
    return _tools_sha256(cls, allowed, shaping)


@lru_cache(maxsize=256)
def _toolbox(cls: object, shaping: ToolShaping) -> Toolbox:
    return Toolbox(getattr(cls, "TOOLS", {}), shaping)


@lru_cache(maxsize=1_024)
def _tools_sha256(cls: object, allowed: tuple[str, ...], shaping: ToolShaping) -> str:
    """Computed once for all episodes with these tools: it takes longer than a step."""
    tools = [list(tool) for tool in tools_for(cls, allowed, shaping)]
    return hashlib.sha256(canonical_json(tools).encode()).hexdigest() if tools else ""


def _with_distractors(tools: list[Tool], count: int, rng: np.random.Generator) -> list[Tool]:
    taken = {tool.name for tool in tools}
    free = [tool for tool in DISTRACTORS if tool.name not in taken]
    for place in rng.permutation(len(free))[:count]:
        tools.insert(int(rng.integers(len(tools) + 1)), free[int(place)])
    return tools


def _words(names: Mapping[str, str]) -> re.Pattern[str] | None:
    """What finds the names of tools in a text, as whole words; None: no name can be told."""
    words = sorted((re.escape(name) for name in names if "_" in name), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])") if words else None
