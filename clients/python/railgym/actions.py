"""What an agent does and what it gets back: the plain types of a step.

The same types are taken by an environment in process and by one behind a server. They know
nothing of gRPC.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple, TypeAlias

FaultCode: TypeAlias = Literal[
    "format_error",
    "unknown_tool",
    "not_allowed",
    "bad_arguments",
    "tool_error",
    "truncated_output",
    "empty_response",
    "refusal",
]


class ToolCall(NamedTuple):
    """One call to one tool, as the agent wrote it.

    Attributes:
        name: Name of the tool. It need not exist: that is the agent's mistake, and comes back as
            an observation.
        arguments_json: The arguments as JSON text, unparsed; at most 64 KiB.
    """

    name: str
    arguments_json: str = "{}"


class Text(NamedTuple):
    """The raw answer of a model without tool calling, parsed under the JSON protocol.

    Attributes:
        text: `{"thought": ..., "action": TOOL or "final", "action_input": {...}}`.
    """

    text: str


class Final(NamedTuple):
    """The agent's answer, which ends the episode.

    Attributes:
        answer: May be empty where only the state counts.
    """

    answer: str = ""


class NoAction(NamedTuple):
    """A turn of a model that held no action that could be run.

    Attributes:
        fault: `"truncated_output"`, `"empty_response"` or `"refusal"`; a refusal ends the episode.
        text: What the model gave, for the log.
    """

    fault: str
    text: str = ""


class Plain(NamedTuple):
    """An action of a plain Gymnasium environment.

    Attributes:
        value: A value of its action space.
    """

    value: Any


ToolAction: TypeAlias = ToolCall | Text | Final | NoAction
Action: TypeAlias = ToolAction | Plain


class Transition(NamedTuple):
    """The five of Gymnasium's step, with names.

    Attributes:
        observation: JSON text from a tool environment, a value of the observation space from a
            plain one.
        reward: Reward of this step alone.
        terminated: The episode reached an end of its own.
        truncated: The episode was cut off.
        info: A tool environment uses "fault" (a `FaultCode`) and "repaired" (what was mended,
            words with commas between), and nothing else.
    """

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def call(name: str, /, **arguments: Any) -> ToolCall:
    """Writes a tool call with Python values for arguments.

    Raises:
        ValueError: An argument is NaN or infinite.
        TypeError: An argument is not JSON.
    """
    return ToolCall(name, json.dumps(arguments, allow_nan=False))
