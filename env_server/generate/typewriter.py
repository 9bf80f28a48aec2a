"""Fresh texts to type, drawn from a seed.

A one-tool text may hold capitals, digits, spaces, repeated and non-ASCII letters; a text for the
keys holds small letters a to z alone.
"""

from __future__ import annotations

import string
from collections.abc import Callable

import numpy as np

from env_server.generate.row import Row, generated_id, generator_for, row

ENV_ID = "railgym/Typewriter-v1"
KEYS_ENV_ID = "railgym/TypewriterKeys-v1"

LENGTHS = {"L1": (2, 2), "L2": (3, 6), "L3": (7, 14)}
"""Characters of a text, both bounds included. A single one would be hit by chance too often."""

MAX_COUNT = 500
"""Rows at once: there are not many more texts of two letters."""

FOREIGN = "äöüßéèñçøåšžłőğαβδλωжшюя"
"""Letters of one code point each, beyond ASCII."""

KINDS = (string.ascii_lowercase, string.ascii_uppercase, string.digits, FOREIGN)
"""Kinds of characters of a one-tool text; the first is as likely as all the others together."""

_RULES = (
    "Nothing that was typed can be taken back. As soon as the paper holds exactly this text, stop "
    "typing and give a final answer; its wording does not matter."
)


def generate(seed: int, count: int, level: str) -> list[Row]:
    """Makes tasks for the typewriter with one tool.

    Args:
        seed: Tasks of the same seed and level are the same.
        count: At most 500.
        level: "L1" two characters, "L2" three to six, "L3" seven to fourteen.

    Raises:
        ValueError: There is no such level, or the count is out of bounds.
    """
    rng = generator_for(seed, level)
    texts = _distinct(count, lambda: _draw_text(rng, *LENGTHS[level]))
    return [
        one_tool_row(generated_id("typewriter", seed, level, number), level, text, ["generated"])
        for number, text in enumerate(texts, start=1)
    ]


def generate_keys(seed: int, count: int, level: str) -> list[Row]:
    """Makes tasks for the typewriter with a tool for each key; otherwise as `generate`."""
    rng = generator_for(seed, level)
    texts = _distinct(count, lambda: _draw_letters(rng, *LENGTHS[level]))
    return [
        keys_row(generated_id("typewriter_keys", seed, level, number), level, text, ["generated"])
        for number, text in enumerate(texts, start=1)
    ]


def one_tool_row(task_id: str, level: str, text: str, tags: list[str]) -> Row:
    """The task to type a text with `type_letter`."""
    request = (
        f'Type this text on the blank paper, one character after the other: "{text}". The '
        "quotation marks do not belong to it; every space does, and small letters differ from "
        "capital ones."
    )
    calls: list[Row] = [{"tool": "type_letter", "arguments": {"letter": c}} for c in text]
    return _paper_row(task_id, ENV_ID, level, request, text, calls, tags)


def keys_row(task_id: str, level: str, text: str, tags: list[str]) -> Row:
    """The task to type a text with the keys `a` to `z`."""
    request = (
        f'Press keys until this text stands on the blank paper: "{text}". The quotation marks do '
        "not belong to it."
    )
    calls: list[Row] = [{"tool": letter, "arguments": {}} for letter in text]
    return _paper_row(task_id, KEYS_ENV_ID, level, request, text, calls, tags)


def _paper_row(
    task_id: str,
    env_id: str,
    level: str,
    request: str,
    text: str,
    calls: list[Row],
    tags: list[str],
) -> Row:
    return row(
        task_id,
        env_id,
        level,
        f"{request} {_RULES}",
        options={"target": text, "finish": "final"},
        expected="target",
        validators=[{"name": "state_equals", "field": "paper"}],
        gold=[*calls, {"final": ""}],
        tags=tags,
    )


def _distinct(count: int, draw: Callable[[], str]) -> list[str]:
    """Draws until there are `count` different texts."""
    if not 0 <= count <= MAX_COUNT:
        raise ValueError(f"expected a count from 0 to {MAX_COUNT}, got {count}")
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[draw()] = None
    return list(texts)


def _draw_text(rng: np.random.Generator, shortest: int, longest: int) -> str:
    """Draws characters of every kind; a longer text has single spaces, never at its ends."""
    length = int(rng.integers(shortest, longest + 1))
    text = _draw_character(rng)
    while len(text) < length:
        inside = length > 6 and text[-1] != " " and len(text) < length - 1
        if inside and rng.random() < 0.2:
            text += " "
        elif rng.random() < 0.15 and text[-1] != " ":
            text += text[-1]
        else:
            text += _draw_character(rng)
    return text


def _draw_character(rng: np.random.Generator) -> str:
    kind = KINDS[0] if rng.random() < 0.5 else KINDS[int(rng.integers(1, len(KINDS)))]
    return kind[int(rng.integers(len(kind)))]


def _draw_letters(rng: np.random.Generator, shortest: int, longest: int) -> str:
    """Draws small letters, of which about one in six repeats the one before."""
    text = ""
    for _ in range(int(rng.integers(shortest, longest + 1))):
        letter = string.ascii_lowercase[int(rng.integers(26))]
        text += text[-1] if text and rng.random() < 0.15 else letter
    return text
