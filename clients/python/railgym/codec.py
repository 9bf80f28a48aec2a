r"""Plain Python, NumPy and Gymnasium values <-> messages of `space.proto` and `episode.proto`.

With a space, a value is read as Gymnasium would give it: `np.int64` for Discrete, a tuple for
Sequence, an array that may be written to for Box. Without one, as in an info, it keeps its kind:

    None, bool, int, float, str, array    themselves
    NumPy scalar, array of no dimension   a NumPy scalar of the same type
    list, tuple, array of objects         a list
    mapping                               a dict, its keys as text
    int beyond 64 bits                    its digits as text

A Python string may hold lone surrogates, which no message can. They travel escaped, as the six
characters `\udXXX`: within JSON text that is the same string, in a name it is a name that does
not exist. This module knows nothing of calls and sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railgym.actions import Action, Final, NoAction, Plain, Text, ToolCall, Transition
from railgym.info_codec import read_info_value, wire_text, write_info_value
from railgym.space_codec import AnySpace, space_from_proto, space_to_proto
from railgym.v1 import episode_pb2 as pb
from railgym.v1 import space_pb2
from railgym.value_codec import read_value, write_value

__all__ = [
    "action_from_proto",
    "action_to_proto",
    "end_reason_from_proto",
    "end_reason_to_proto",
    "info_from_proto",
    "info_to_proto",
    "observation_from_proto",
    "observation_to_proto",
    "space_from_proto",
    "space_to_proto",
    "transition_from_proto",
    "transition_to_proto",
    "value_from_proto",
    "value_to_proto",
]


def value_to_proto(value: Any, space: AnySpace | None = None) -> space_pb2.Value:
    """Writes a value.

    Args:
        value: An array keeps its own element type; a list becomes an array of the space's.
        space: The space that it lives in; None for an entry of an info.

    Raises:
        TypeError: It is of a type that cannot travel.
        ValueError: It does not have the form of the space's values.
    """
    message = space_pb2.Value()
    if space is None:
        write_info_value(value, message)
    else:
        write_value(space, value, message)
    return message


def value_from_proto(message: space_pb2.Value, space: AnySpace | None = None) -> Any:
    """Reads a value.

    Args:
        message: As it came.
        space: The space that it lives in; None for an entry of an info. Bounds and shapes are
            not checked: `space.contains` does that.

    Raises:
        ValueError: It is of no known kind, holds a bad tensor, or does not have the form of the
            space's values.
    """
    return read_info_value(message) if space is None else read_value(space, message)


def info_to_proto(info: Mapping[str, Any]) -> dict[str, space_pb2.Value]:
    """Writes an info.

    Raises:
        TypeError: A value is of a type that cannot travel.
    """
    return {wire_text(str(name)): value_to_proto(value) for name, value in info.items()}


def info_from_proto(info: Mapping[str, space_pb2.Value]) -> dict[str, Any]:
    """Reads an info.

    Raises:
        ValueError: A value is of no known kind, or holds a bad tensor.
    """
    return {name: read_info_value(value) for name, value in info.items()}


def observation_to_proto(observation: Any, space: AnySpace | None = None) -> pb.Observation:
    """Writes an observation.

    Args:
        observation: JSON text from a tool environment, a value from a plain one.
        space: The observation space of a plain environment. Without it a string is taken for
            JSON, and the forms that only a space tells apart travel as in an info.

    Raises:
        TypeError: It is of a type that cannot travel.
        ValueError: It does not have the form of the space's values.
    """
    message = pb.Observation()
    _write_observation(observation, space, message)
    return message


def observation_from_proto(message: pb.Observation, space: AnySpace | None = None) -> Any:
    """Reads an observation: a string from a tool environment, a value of the space otherwise.

    Raises:
        ValueError: There is none, or it does not have the form of the space's values.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise ValueError("expected an observation, got none")
    return message.json if kind == "json" else value_from_proto(message.value, space)


def transition_to_proto(transition: Transition, space: AnySpace | None = None) -> pb.Transition:
    """Writes a transition, without state hash and end.

    Args:
        transition: Gymnasium's five.
        space: The observation space of a plain environment, see `observation_to_proto`.

    Raises:
        TypeError: Observation or info hold something that cannot travel.
        ValueError: The observation does not have the form of the space's values.
    """
    observation, reward, terminated, truncated, info = transition
    message = pb.Transition(reward=reward, terminated=terminated, truncated=truncated)
    _write_observation(observation, space, message.observation)
    for name, value in info.items():
        write_info_value(value, message.info[wire_text(str(name))])
    return message


def transition_from_proto(message: pb.Transition, space: AnySpace | None = None) -> Transition:
    """Reads a transition.

    Raises:
        ValueError: A part of it is missing or malformed.
    """
    return Transition(
        observation_from_proto(message.observation, space),
        message.reward,
        message.terminated,
        message.truncated,
        info_from_proto(message.info),
    )


def action_to_proto(action: Action, space: AnySpace | None = None) -> pb.Action:
    """Writes an action.

    Args:
        action: What the agent does.
        space: The action space of a plain environment, which its values need.

    Raises:
        TypeError: It is no action, or a part of it is of a type that cannot travel.
        ValueError: It does not have the form of the space's values.
    """
    message = pb.Action()
    match action:
        case ToolCall(name, arguments):
            message.tool_call.name = wire_text(name)
            message.tool_call.arguments_json = wire_text(arguments)
        case Text(text):
            message.text.text = wire_text(text)
        case Final(answer):
            message.final.SetInParent()
            message.final.answer = wire_text(answer)
        case NoAction(fault, text):
            message.no_action.fault = wire_text(fault)
            message.no_action.text = wire_text(text)
        case Plain(value) if space is not None:
            write_value(space, value, message.value)
        case Plain(value):
            write_info_value(value, message.value)
        case _:
            raise TypeError(f"expected an action of railgym, got {type(action).__name__}")
    return message


def action_from_proto(message: pb.Action, space: AnySpace | None = None) -> Action:
    """Reads an action.

    Args:
        message: As it came.
        space: The action space of a plain environment, which types its values.

    Raises:
        ValueError: It holds none, or its value does not have the form of the space's values.
    """
    match message.WhichOneof("kind"):
        case "tool_call":
            return ToolCall(message.tool_call.name, message.tool_call.arguments_json)
        case "text":
            return Text(message.text.text)
        case "final":
            return Final(message.final.answer)
        case "no_action":
            return NoAction(message.no_action.fault, message.no_action.text)
        case "value":
            return Plain(value_from_proto(message.value, space))
        case _:
            raise ValueError("expected an action of a known kind, got none")


def end_reason_to_proto(reason: str | None) -> pb.EndReason.ValueType:
    """Writes why an episode ended, for instance "final"; None: it has not.

    Raises:
        ValueError: There is no such reason.
    """
    if reason is None:
        return pb.END_REASON_UNSPECIFIED
    name = f"END_REASON_{reason.upper()}"
    if name not in pb.EndReason.keys()[1:]:
        words = ", ".join(str(end_reason_from_proto(value)) for value in pb.EndReason.values()[1:])
        raise ValueError(f"expected one of {words}; got {reason[:80]!r}")
    return pb.EndReason.Value(name)


def end_reason_from_proto(reason: pb.EndReason.ValueType) -> str | None:
    """Reads why an episode ended; None: it has not. A reason of a newer server is its number."""
    if reason == pb.END_REASON_UNSPECIFIED:
        return None
    if reason not in pb.EndReason.values():
        return str(reason)
    return pb.EndReason.Name(reason).removeprefix("END_REASON_").lower()


def _write_observation(observation: Any, space: AnySpace | None, into: pb.Observation) -> None:
    if space is not None:
        write_value(space, observation, into.value)
    elif isinstance(observation, str):
        into.json = wire_text(observation)
    else:
        write_info_value(observation, into.value)
