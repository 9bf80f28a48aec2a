"""The expected end of a task in a shop, computed by playing what was asked for.

A task's author writes down the calls that were asked for, with SQL in place of what has to be
looked up, and what is to be answered. Whether it can be done, and why not, is for the shop's own
rules to say. What it computes from is a task's data, never an agent's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from env_server.arguments import BadJson, BrokenJson, parse_object
from env_server.envs.orders_books import Books, Refused


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AskedCall(_Data):
    """A call that was asked for.

    Attributes:
        tool: Name of the tool.
        arguments: By name: values, `{"sql": ...}` for the value that a SELECT gives, or
            `{"item": 0}` for an item of a list of `each`.
        each: A SELECT of lists. The call is made for each of them; empty: once.
    """

    tool: str
    arguments: dict[str, Any] = {}
    each: str = ""


class Asked(_Data):
    """What was asked for.

    Attributes:
        calls: Played in order. Where the rules refuse one, nothing was to be changed at all.
        answer: What the answer holds where all can be done: values, `{"sql": ...}` for a single
            value, or `{"list": ...}` for all values of a SELECT.
    """

    calls: list[AskedCall] = []
    answer: dict[str, Any] = {}


def compute(
    expression: str, books: Books, run: Callable[[str, dict[str, Any]], object]
) -> dict[str, Any]:
    """Computes the end that was asked for.

    Args:
        expression: `Asked` as JSON.
        books: Of the shop before anything was changed; the calls change them.
        run: Calls a tool with arguments on these books.

    Returns:
        "changes": how the shop should differ in the end; "answer": what should be answered.

    Raises:
        ValueError: The expression is malformed, or its SQL fails.
    """
    try:
        asked = Asked.model_validate(parse_object(expression))
    except (BadJson, BrokenJson, ValidationError) as e:
        raise ValueError(f"expected calls and an answer as JSON: {e}") from None
    try:
        answer = {name: _value(value, books) for name, value in asked.answer.items()}
        for call in asked.calls:
            for items in books.world.column(call.each) if call.each else [[]]:
                given = {name: _value(v, books, items) for name, v in call.arguments.items()}
                run(call.tool, given)
    except Refused as e:
        return {"changes": {}, "answer": {"outcome": "impossible", "reason": e.reason}}
    return {"changes": books.changes.to_json(), "answer": {"outcome": "done", **answer}}


def _value(value: Any, books: Books, items: Sequence[Any] = ()) -> Any:
    """A value, looked up where it has to be.

    Raises:
        Refused: There is nothing to be found, more than one thing, or a gap.
    """
    if not isinstance(value, dict):
        return value
    if "item" in value:
        return items[value["item"]]
    if "list" in value:
        return books.world.column(value["list"])
    found = books.world.column(value["sql"])
    if not found:
        raise Refused("not_found", value["sql"])
    if len(found) > 1:
        raise Refused("ambiguous", value["sql"])
    if found[0] is None:
        raise Refused("not_on_record", value["sql"])
    return found[0]
