"""Trials that could not be played: why, as the folder of a run tells it.

An episode that one of them left is not valid, so that no score says anything of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FAILURES = "failures.jsonl"
"""The file that has a line for each of them."""


class Unplayed(NamedTuple):
    """Trials of one agent in one environment that failed for one reason.

    Attributes:
        agent: Whose they were to be.
        env_id: Where.
        error: What went wrong.
        trials: How many there are.
    """

    agent: str
    env_id: str
    error: str
    trials: int


def read_unplayed(path: Path) -> list[Unplayed]:
    """Reads failures.jsonl, most frequent reasons first; a line that is none is left out.

    Raises:
        OSError: It is there, and cannot be read.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    counted = Counter(_reasons(text))
    return [Unplayed(*reason, trials) for reason, trials in counted.most_common()]


def _reasons(text: str) -> Iterator[tuple[str, str, str]]:
    for line in text.splitlines():
        try:
            row = json.loads(line)
            place = f", at {row['at']}" if row.get("at") else ""
            error = f"{row['kind']}: {row['error']}{place}"
            yield str(row["agent"]), str(row["env_id"]), error
        except (ValueError, KeyError, TypeError):
            continue
