"""Reads what a person types as actions, without sending anything."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium

from env_server.cli.envs import signature
from env_server.errors import nearest, shown
from railgym.actions import Action, Final, Plain, ToolCall
from railgym.spaces import ToolSpec


class BadLine(ValueError):
    """A line that says nothing that could be done."""


def read_call(line: str, tools: Iterable[ToolSpec]) -> Action:
    """Reads a line as a tool call or a final answer.

    The arguments are values in order, NAME=VALUE, or a JSON object. A value is JSON where the
    tool wants no string; what is no JSON is sent as text, for the environment to judge.

    Raises:
        BadLine: It names no tool, or its arguments cannot be told apart.
    """
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word == "final":
        return Final(rest)
    by_name = {tool.name: tool for tool in tools}
    if word not in by_name:
        close = ", ".join(nearest(word, [*by_name, "final", "help"]))
        raise BadLine(f"no tool {shown(word)}; nearest: {close}")
    if rest.startswith("{"):
        return ToolCall(word, rest)
    return ToolCall(word, json.dumps(_arguments(rest, by_name[word])))


def read_value(line: str, space: gymnasium.Space[Any]) -> Action:
    """Reads a line as an action of a plain space, in Gymnasium's JSON form.

    Raises:
        BadLine: It is no value of the space.
    """
    expected = f"expected a value of {space} as JSON, got {shown(line)}"
    try:
        value = space.from_jsonable([json.loads(line)])[0]
    except (ValueError, TypeError, KeyError, IndexError):
        raise BadLine(expected) from None
    if not space.contains(value):
        raise BadLine(expected)
    return Plain(value)


def _arguments(text: str, tool: ToolSpec) -> dict[str, Any]:
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise BadLine(f'{e}: expected text with blanks as "text with blanks"') from None
    properties: Mapping[str, Any] = tool.parameters["properties"]
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in properties:
            free = [name for name in properties if name not in found]
            if not free:
                raise BadLine(f"expected {signature(tool)}, got one value more: {shown(word)}")
            name, value = free[0], word
        found[name] = _value(value, properties[name])
    return found


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
