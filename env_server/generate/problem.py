"""A drawn problem, and how numbers and names are drawn for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from env_server.envs.expression import Number, Operation

Rng: TypeAlias = np.random.Generator
Item = TypeVar("Item")


class Problem(NamedTuple):
    """A question in words, and the calls that answer it."""

    text: str
    solution: Operation


def pick(rng: Rng, items: Sequence[Item], count: int) -> list[Item]:
    """Draws different items, in a random order."""
    return [items[int(i)] for i in rng.permutation(len(items))[:count]]


def numbers(rng: Rng, count: int) -> list[int]:
    """Draws different numbers from 11 to 98."""
    return pick(rng, range(11, 99), count)


def small_numbers(rng: Rng, count: int) -> list[int]:
    """Draws different numbers from 2 to 9."""
    return pick(rng, range(2, 10), count)


def total(terms: Sequence[Operation | Number]) -> Operation | Number:
    """The terms added up from left to right."""
    return reduce(lambda left, right: Operation("add", (left, right)), terms)


def bullets(lines: Sequence[str]) -> str:
    """One line each, marked with a dash."""
    return "\n".join(f"- {line}" for line in lines)
