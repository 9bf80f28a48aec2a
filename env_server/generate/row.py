"""What the rows of all generators have in common: form, id and source of randomness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from env_server.tasks import LEVELS

Row = dict[str, Any]
"""A task as it stands in a task file."""


def generator_for(seed: int, level: str) -> np.random.Generator:
    """The source of randomness for one level.

    Raises:
        ValueError: There is no such level, or the seed is negative.
    """
    if level not in LEVELS:
        raise ValueError(f"expected a level of {', '.join(LEVELS)}; got {level!r}")
    return np.random.default_rng([seed, LEVELS.index(level)])


def generated_id(folder: str, seed: int, level: str, number: int) -> str:
    """The id of a generated task: it names its seed, so that two seeds can be used together."""
    return f"{folder}/generated/{level}-{number:03}-seed{seed}"


def row(
    task_id: str,
    env_id: str,
    level: str,
    instruction: str,
    *,
    options: Mapping[str, Any],
    expected: str,
    validators: Sequence[Mapping[str, Any]],
    gold: Sequence[Mapping[str, Any]],
    tags: Sequence[str],
) -> Row:
    """Puts a row together; the limit of steps is twice the gold solution and two more."""
    return {
        "task_id": task_id,
        "env_id": env_id,
        "level": level,
        "instruction": instruction,
        "options": dict(options),
        "max_steps": 2 * len(gold) + 2,
        "expected": expected,
        "validators": [dict(rule) for rule in validators],
        "gold": [dict(action) for action in gold],
        "tags": list(tags),
    }
