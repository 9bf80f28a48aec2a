"""What success is: rules over the end of an episode, by name.

A validator is a pure function of an `Ending` and of the parameters that stand beside its name in
the task. All of a task's validators must hold. None of them asks a model, and none evaluates text.
"""

from __future__ import annotations

import inspect
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from env_server.arguments import BadJson, BrokenJson, parse_object

_NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?"
    r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d+)?(?!\w|\.\d)"
)


class CallRecord(NamedTuple):
    """One call of an episode.

    Attributes:
        step: Its number, from 1.
        name: The tool that the agent named.
        arguments: In canonical form; None where they could not be read.
        fault: A fault code, or None.
    """

    step: int
    name: str
    arguments: dict[str, Any] | None
    fault: str | None


class Ending(NamedTuple):
    """What a validator may look at.

    Attributes:
        answer: The final answer; None where the environment ended the episode.
        state: Gives the environment's state, a JSON value.
        calls: Every call, in order.
        expected: The expected value, computed by the environment; None where the task has none.
    """

    answer: str | None
    state: Callable[[], Any]
    calls: Sequence[CallRecord]
    expected: Any


def answer_equals(ending: Ending, also: Sequence[str] = ()) -> bool:
    """The answer is the expected text, or one of `also`; case, spaces and punctuation aside."""
    wanted = [plain(str(text)) for text in (ending.expected, *also) if text is not None]
    return ending.answer is not None and plain(ending.answer) in wanted


def answer_contains(ending: Ending, extra: int = 3) -> bool:
    """The answer holds the words of the expected text in a row, and at most `extra` others."""
    words, wanted = plain(ending.answer or "").split(), plain(str(ending.expected)).split()
    room = len(words) - len(wanted)
    return room <= extra and any(words[at : at + len(wanted)] == wanted for at in range(room + 1))


def answer_number(ending: Ending, tolerance: float = 1e-6) -> bool:
    """The answer holds exactly one number, and it is the expected one.

    Args:
        ending: The end of the episode.
        tolerance: Greatest relative difference; for an expected 0 the absolute one.
    """
    numbers = _numbers(ending.answer or "")
    if len(numbers) != 1 or not math.isfinite(numbers[0]):
        return False
    expected = float(ending.expected)
    return abs(numbers[0] - expected) <= tolerance * (abs(expected) or 1.0)


def answer_yes_no(ending: Ending) -> bool:
    """The answer begins with the expected "yes" or "no", and does not hold the other word."""
    words = plain(ending.answer or "").split()
    return (
        bool(words) and words[0] == ending.expected and not {"yes", "no"} - {words[0]} & set(words)
    )


def answer_set(ending: Ending) -> bool:
    """The answer lists exactly the expected items, in any order, by commas, "and" or new lines."""
    listed = ending.expected if isinstance(ending.expected, list) else [ending.expected]
    expected = {plain(str(item)) for item in listed}
    parts = re.split(r"[,;\n]|\b(?i:and)\b", ending.answer or "")
    items = [plain(part) for part in parts if plain(part)]
    if not expected:
        return items == ["none"]
    return set(items) == expected and len(items) == len(expected)


def answer_fields(ending: Ending, part: str | None = None) -> bool:
    """The answer is a JSON object that has at least the expected fields, with their values.

    Texts are equal as in `answer_equals`, numbers by value, lists in any order.

    Args:
        ending: The end of the episode.
        part: Of the expected value; None: all of it.
    """
    expected = ending.expected if part is None else ending.expected[part]
    try:
        answer = parse_object(ending.answer or "")
    except (BadJson, BrokenJson):
        return False
    return all(name in answer and _same(answer[name], v) for name, v in expected.items())


def state_equals(ending: Ending, field: str | None = None, part: str | None = None) -> bool:
    """The state, or one field of it, is the expected value, or one part of that."""
    state = ending.state()
    expected = ending.expected if part is None else ending.expected[part]
    return bool((state if field is None else state[field]) == expected)


def must_call(ending: Ending, any_of: Sequence[str], at_least: int = 1) -> bool:
    """Tools of `any_of` were called without a fault, together `at_least` times."""
    done = sum(call.name in any_of and call.fault is None for call in ending.calls)
    return done >= at_least


def must_not_call(ending: Ending, tools: Sequence[str]) -> bool:
    """None of the tools was called, not even with a fault."""
    return not any(call.name in tools for call in ending.calls)


def max_calls(ending: Ending, n: int) -> bool:
    """At most `n` calls were made, those with faults included."""
    return len(ending.calls) <= n


def calls_in_order(ending: Ending, tools: Sequence[str]) -> bool:
    """The tools were called without a fault in this order, others between them aside."""
    done = iter([call.name for call in ending.calls if call.fault is None])
    return all(tool in done for tool in tools)


Validator = Callable[..., bool]

VALIDATORS: dict[str, Validator] = {
    rule.__name__: rule
    for rule in (
        answer_equals,
        answer_contains,
        answer_number,
        answer_yes_no,
        answer_set,
        answer_fields,
        state_equals,
        must_call,
        must_not_call,
        max_calls,
        calls_in_order,
    )
}


def parameters(name: str) -> tuple[set[str], set[str]]:
    """The parameters of a validator: those that it needs, and all that it takes."""
    found = list(inspect.signature(VALIDATORS[name]).parameters.values())[1:]
    return {p.name for p in found if p.default is p.empty}, {p.name for p in found}


def judge(
    rules: Sequence[Mapping[str, Any]], required_fields: Sequence[str], ending: Ending
) -> dict[str, bool]:
    """Applies a task's rules to an ending.

    Returns:
        By validator, whether it holds; "required_fields" where the task has some. A name that
        stands twice holds where both do.
    """
    verdict = {"required_fields": _has_fields(ending, required_fields)} if required_fields else {}
    for rule in rules:
        given = {key: value for key, value in rule.items() if key != "name"}
        holds = VALIDATORS[rule["name"]](ending, **given)
        verdict[rule["name"]] = holds and verdict.get(rule["name"], True)
    return verdict


def _has_fields(ending: Ending, fields: Sequence[str]) -> bool:
    try:
        return set(fields) <= set(parse_object(ending.answer or ""))
    except (BadJson, BrokenJson):
        return False


def _same(got: Any, expected: Any) -> bool:
    """Whether two JSON values mean the same; a boolean is no number, and nothing is null but it."""
    if isinstance(expected, list):
        return isinstance(got, list) and _same_items(got, expected)
    if isinstance(expected, str):
        return isinstance(got, str) and plain(got) == plain(expected)
    return isinstance(got, bool) == isinstance(expected, bool) and bool(got == expected)


def _same_items(got: Sequence[Any], expected: Sequence[Any]) -> bool:
    rest = list(got)
    for item in expected:
        place = next((i for i, other in enumerate(rest) if _same(other, item)), None)
        if place is None:
            return False
        del rest[place]
    return not rest


def plain(text: str) -> str:
    """Case-folded words and numbers, one space between them."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.findall(r"\w+(?:[.:@]\w+)*", folded))


def _numbers(text: str) -> list[float]:
    """Every number in a text; "1,234.5" is one, "1, 2" are two, "1.2.3" is none."""
    if len(text) > 10_000:
        return []
    found = _NUMBER.findall(text)
    return [float(number.replace(",", "").replace("\u2212", "-")) for number in found]
