"""The environment contract: a tool environment is a Gymnasium environment whose actions are calls.

An author subclasses `ToolEnv`, writes tools as typed methods under `@tool`, and says what the
state is. Schemas come from the signatures, descriptions from the docstrings. This module knows
nothing of tasks, sessions or the wire.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self, TypeVar

import gymnasium
from pydantic import BaseModel, ConfigDict, ValidationError

from env_server.arguments import canonical_json
from env_server.errors import BadOptions, cut, shown
from env_server.tools import AgentFault, Call, Tool, ToolError, tool
from railgym.actions import (
    Action,
    FaultCode,
    Final,
    NoAction,
    Plain,
    Text,
    ToolAction,
    ToolCall,
    Transition,
)
from railgym.spaces import MAX_OBSERVATION, ToolSpace, ToolSpec, json_text_space

__all__ = [
    "Action",
    "AgentFault",
    "Call",
    "FaultCode",
    "Final",
    "NoAction",
    "Options",
    "Plain",
    "StatefulEnv",
    "Text",
    "Tool",
    "ToolAction",
    "ToolCall",
    "ToolEnv",
    "ToolError",
    "ToolSpace",
    "ToolSpec",
    "Transition",
    "fault",
    "observation_text",
    "read_options",
    "tool",
]

SomeOptions = TypeVar("SomeOptions", bound="Options")


class Options(BaseModel):
    """Base of an environment's reset options: unknown names and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StatefulEnv(Protocol):
    """What an episode drives: a Gymnasium environment that can say what its state is."""

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """As Gymnasium's."""
        ...

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """As Gymnasium's."""
        ...

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's."""
        ...

    def step(self, action: Any) -> Transition:
        """As Gymnasium's."""
        ...

    def state_hash(self) -> bytes:
        """SHA-256 over the state in canonical form; reading it changes nothing."""
        ...


class ToolEnv(gymnasium.Env[str, ToolAction]):
    """An environment whose actions are tool calls.

    A subclass writes tools as methods under `@tool`, and `_begin`, `state` and `_outcome`. `step`
    never raises for an action: a mistake becomes an observation `{"error": {...}}` with reward 0,
    a fault code in the info, and an unchanged state. Observations are canonical JSON text.

    Randomness comes from `self.np_random` alone, and everything that a query or a set returns is
    in a total order: the same seed, options and actions give the same episode for ever.
    """

    OPTIONS: ClassVar[type[Options]] = Options
    TOOLS: ClassVar[dict[str, Tool]] = {}
    MAX_STEPS: ClassVar[int] = 100
    """The limit of steps where no task sets one."""

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Collects the class's tools, in the order in which they stand."""
        super().__init_subclass__(**kwargs)
        found = {m.__tool__.name: m.__tool__ for m in vars(cls).values() if hasattr(m, "__tool__")}
        cls.TOOLS = {**cls.TOOLS, **found}

    def __init__(self, render_mode: str | None = None) -> None:
        """Makes an environment that awaits its reset.

        Args:
            render_mode: "ansi" or None.
        """
        self.render_mode = render_mode
        self.action_space = ToolSpace([tool.spec for tool in self.TOOLS.values()])
        self.options = self.OPTIONS.model_construct()

    @cached_property
    def observation_space(self) -> gymnasium.spaces.Text:  # type: ignore[override]
        """Canonical JSON text; made on first use, for few ever look at it."""
        return json_text_space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: Sets the generator; None goes on with it.
            options: By name, as `OPTIONS` says.

        Returns:
            The first observation, JSON text, and an empty info.

        Raises:
            BadOptions: An option is unknown, or its value is of a wrong type or out of bounds.
        """
        read = read_options(self.OPTIONS, options)
        super().reset(seed=seed)
        self.options = read
        return observation_text({"result": self._begin()}), {}

    def step(self, action: ToolAction, rule: str = "strict") -> Transition:
        """Applies a call or a final answer.

        Args:
            action: A `ToolCall` or a `Final`; a `Text` or `NoAction` is a format error here, for
                it is the episode that reads those.
            rule: How strictly arguments are read, see `Tool.read`.
        """
        if isinstance(action, Final):
            reward, _ = self._outcome(answered=True)
            return Transition(observation_text({"result": None}), reward, True, False, {})
        try:
            call = self.read(action, rule)
        except AgentFault as e:
            return fault(e.code, str(e))
        return self.run(call)

    def read(self, action: ToolAction, rule: str = "strict") -> Call:
        """Finds the tool of a call and reads its arguments; changes nothing.

        Raises:
            AgentFault: `unknown_tool`, `bad_arguments` or `format_error`.
        """
        if not isinstance(action, ToolCall):
            raise AgentFault("format_error", f"expected a tool call, got {type(action).__name__}")
        tool = self.TOOLS.get(action.name)
        if tool is None:
            names = ", ".join(self.TOOLS)
            raise AgentFault("unknown_tool", f"no tool {shown(action.name)}; there are {names}")
        return tool.read(action.arguments_json, rule)

    def run(self, call: Call, reworded: Callable[[str], str] = str) -> Transition:
        """Runs a call that `read` has checked.

        Args:
            call: The call.
            reworded: Gives what goes wrong in the words that the agent knows.
        """
        info = {} if call.repaired is None else {"repaired": call.repaired}
        try:
            result = call.tool.method(self, **call.arguments)
        except ToolError as e:
            return fault(e.code, reworded(e.told(call.tool.name)), info)
        reward, terminated = self._outcome(answered=False)
        return Transition(observation_text({"result": result}), reward, terminated, False, info)

    def state(self) -> Any:
        """The whole state as a JSON value. Reading it changes nothing."""
        raise NotImplementedError

    def state_hash(self) -> bytes:
        """SHA-256 over the state in canonical form (32 bytes)."""
        return hashlib.sha256(canonical_json(self.state()).encode()).digest()

    def fork(self) -> Self:
        """A copy that shares nothing that can change, the generator's state included."""
        return copy.deepcopy(self)

    def reference(self, expression: str) -> Any:
        """Computes a value that a task's author asks for, from the state or by its rules.

        Args:
            expression: In the environment's own terms: a task's data, never an agent's.

        Raises:
            ValueError: The environment cannot compute it.
        """
        raise ValueError(f"{type(self).__name__} has no references, got {expression!r}")

    def render(self) -> str:
        """The state as text."""
        return canonical_json(self.state())

    def _begin(self) -> Any:
        """Sets the state anew from `self.options` and `self.np_random`.

        Returns:
            The result that the first observation shows, a JSON value.
        """
        raise NotImplementedError

    def _outcome(self, answered: bool) -> tuple[float, bool]:
        """Reward and whether the episode terminates, after an action that was no fault.

        Args:
            answered: The agent has just given its final answer.
        """
        return 0.0, answered


def fault(code: FaultCode, message: str, info: Mapping[str, Any] | None = None) -> Transition:
    """The transition of an agent's mistake: an observation, reward 0, the code in the info."""
    text = observation_text({"error": {"code": code, "message": message}})
    return Transition(text, 0.0, False, False, {**(info or {}), "fault": code})


def observation_text(value: Any) -> str:
    """Writes an observation, at most 64 KiB of canonical JSON.

    Raises:
        ValueError: It is longer; an environment must page its results.
    """
    text = canonical_json(value)
    if len(text) > MAX_OBSERVATION:
        raise ValueError(f"an observation may have {MAX_OBSERVATION:,} characters, not {len(text)}")
    return text


def read_options(model: type[SomeOptions], options: Mapping[str, Any] | None) -> SomeOptions:
    """Checks reset options.

    Raises:
        BadOptions: An option is unknown, or its value is wrong; the message names it.
    """
    try:
        return model.model_validate(dict(options or {}))
    except ValidationError as e:
        first = e.errors(include_url=False, include_context=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or "options"
        names = ", ".join(model.model_fields) or "no options"
        expected = f"one of {names}" if first["type"] == "extra_forbidden" else first["msg"]
        got = cut(repr(first["input"]))
        message = f"option {shown(name)}: expected {expected}; got {got}"
        raise BadOptions(message, option=name[:200], expected=expected, got=got) from None
