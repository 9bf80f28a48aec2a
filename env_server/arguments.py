"""Canonical JSON: how argument text is read, and how any value is written.

One rule serves validation, execution, hashing and logging. Reading: a JSON object; no duplicate
keys; no NaN or Infinity; integers exact up to 1,000 digits; 25, 25.0 and 2.5e1 are one number;
strings keep every code point. Writing: sorted keys, ASCII, no spaces. It knows nothing of tools.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from env_server.errors import shown

MAX_DIGITS = 1_000
MAX_CHARACTERS = 64 * 1024
MAX_DEPTH = 64

_BLANK = re.compile(r"(\{\s*\}\s*)?\"\"|null|")
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[][{}]', re.DOTALL)

_encode = json.JSONEncoder(
    ensure_ascii=True,
    check_circular=False,  # what has come from JSON or goes to it is a tree; saves a seventh
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
).encode


class BadJson(ValueError):
    """Text that is JSON but not canonical: it says what was expected and what came."""


class BrokenJson(ValueError):
    """Text that is no JSON at all."""


def canonical_json(value: Any) -> str:
    """Writes a JSON value as one text: sorted keys, ASCII, no spaces.

    Raises:
        ValueError: It holds NaN, an infinity, or something that is not JSON.
        TypeError: It holds an object that is not JSON.
    """
    return _encode(value)


def parse_object(text: str) -> dict[str, Any]:
    """Reads a JSON object by the canonical rule.

    Raises:
        BrokenJson: The text is no JSON.
        BadJson: The JSON is not an object, or breaks the rule.
    """
    stripped = text.strip()
    value, end = scan_value(stripped, 0)
    if end != len(stripped):
        raise BrokenJson(f"expected one JSON object, got more text after it, at character {end}")
    if not isinstance(value, dict):
        raise BadJson(f"expected a JSON object, got {json_type(value)}")
    return value


def scan_value(text: str, start: int) -> tuple[Any, int]:
    """Reads the JSON value that begins at `start`, by the canonical rule.

    Returns:
        The value, and the index of the first character after it.

    Raises:
        BrokenJson: No JSON begins there.
        BadJson: The JSON breaks the rule.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadJson(f"expected at most {MAX_CHARACTERS:,} characters of JSON, got {len(text):,}")
    if _is_deep(text, start):
        raise BadJson(f"expected at most {MAX_DEPTH} levels of nesting, got more")
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError:  # its message is another one in each version of Python
        got = shown(text[start:])
        raise BrokenJson(f"expected a JSON object, got text that is not JSON: {got}") from None


def is_blank(text: str) -> bool:
    """Whether a model's argument text means no arguments: empty, blank, `""`, null or `{}""`."""
    return _BLANK.fullmatch(text.strip()) is not None


def json_type(value: Any) -> str:
    """The JSON name of a value's type, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, Mapping) else "an array"


def _is_deep(text: str, start: int) -> bool:
    """Whether the JSON that begins at `start` is nested too deep, be it broken or not.

    It looks at brackets alone, before the text is parsed: the parser's own limit depends on the
    version of Python and on how deep the caller stands, which would make replays differ.
    """
    if text.count("[", start) + text.count("{", start) <= MAX_DEPTH:
        return False
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text, start):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > MAX_DEPTH:
            return True
        if depth <= 0:
            break
    return False


def _integer(text: str) -> int:
    _check_digits(text)
    return int(text)


def _number(text: str) -> int | float:
    _check_digits(text)
    value = float(text)
    if math.isinf(value):
        raise BadJson(f"expected a finite number, got {text[:40]}")
    if value == 0:  # a Decimal does not hold every exponent of 0
        return 0
    if value.is_integer():  # also where the text says a little more: what is written is read again
        exact = Decimal(text)
        return int(exact) if exact == exact.to_integral_value() else int(value)
    return value


def _check_digits(number: str) -> None:
    if len(number) > MAX_DIGITS:
        digits = sum(map(str.isdigit, number))
        if digits > MAX_DIGITS:
            raise BadJson(f"expected numbers of at most {MAX_DIGITS:,} digits, got {digits:,}")


def _constant(name: str) -> float:
    raise BadJson(f"expected a finite number, got {name}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for name, item in pairs:
        if name in value:
            raise BadJson(f"expected each key once, got {shown(name)} twice")
        value[name] = item
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
)
