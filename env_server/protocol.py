"""Comes from any kind of action to a call or an answer, and reads the JSON protocol.

The JSON protocol is for models without tool calling:

    {"thought": ..., "action": TOOL or "final", "action_input": {...}}

Exactly one such object is expected. One that is fenced or stands in prose is taken out of it and
marked as repaired; none, two, or a broken one is a format error. It knows no tools.
"""

from __future__ import annotations

from typing import Any

from env_server.arguments import BadJson, BrokenJson, canonical_json, scan_value
from env_server.env import Action, AgentFault, FaultCode, Final, NoAction, Text, ToolCall
from env_server.errors import bad_action, shown

FIELDS = ("thought", "action", "action_input")

_CLAIMS: dict[str, FaultCode] = {
    "truncated_output": "truncated_output",
    "empty_response": "empty_response",
    "refusal": "refusal",
}
"""What a client may say of a turn that held no action."""


def read(action: Action) -> tuple[ToolCall | Final, str | None]:
    """Reads an action of any kind that environments with tools take.

    Returns:
        A call or an answer, and what was mended to read it, or None.

    Raises:
        AgentFault: As `parse`, and where there is no action, with the fault that the client names.
        BadAction: It is of another kind.
    """
    if isinstance(action, ToolCall | Final):
        return action, None
    if isinstance(action, Text):
        return parse(action.text)
    if isinstance(action, NoAction) and action.fault in _CLAIMS:
        raise AgentFault(_CLAIMS[action.fault], f"no action: {action.fault}")
    raise bad_action("a tool call, a text, a final answer or a known fault", action)


def parse(text: str) -> tuple[ToolCall | Final, str | None]:
    """Reads a model's answer.

    Returns:
        The action, and what was mended to read it, or None.

    Raises:
        AgentFault: `empty_response`, `format_error`, or `bad_arguments` for JSON that breaks the
            canonical rule.
    """
    if not text.strip():
        raise AgentFault("empty_response", "expected a JSON object, got an empty answer")
    start = text.find("{")
    if start < 0:
        raise AgentFault("format_error", f"expected {_FORM}, got text without an object")
    try:
        value, end = scan_value(text, start)
    except BrokenJson as e:
        raise AgentFault("format_error", str(e)) from None
    except BadJson as e:
        raise AgentFault("bad_arguments", str(e)) from None
    if "{" in text[end:]:
        raise AgentFault("format_error", "expected one JSON object, got a second one after it")
    wrapped = bool(text[:start].strip() or text[end:].strip())
    return _action(value), "unwrapped" if wrapped else None


def _action(value: dict[str, Any]) -> ToolCall | Final:
    unknown = sorted(set(value) - set(FIELDS))
    if unknown:
        raise AgentFault("format_error", f"expected {_FORM}, got the key {shown(unknown[0])}")
    name = value.get("action")
    if not isinstance(name, str):
        raise AgentFault("format_error", f"expected {_FORM}, got no text under 'action'")
    given = value.get("action_input")
    if name == "final":
        answer = "" if given is None else given
        return Final(answer if isinstance(answer, str) else canonical_json(answer))
    return ToolCall(name, canonical_json(given))


_FORM = '{"thought": ..., "action": TOOL or "final", "action_input": {...}}'
