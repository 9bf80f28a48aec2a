"""Which episodes of a run's log belong to what was asked for last.

One folder may have been played in for several requests, with another prompt for instance: the log
keeps all of it, and scores are of the last one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

CONFIG = "config.json"

if TYPE_CHECKING:
    from env_server.scoring.score import EpisodeScore


def last_request(folder: Path) -> frozenset[str] | None:
    """The keys of the trials that were asked for last; None: it is not the folder of a run."""
    try:
        return frozenset(json.loads((folder / CONFIG).read_text(encoding="utf-8"))["keys"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def asked_for(scores: Iterable[EpisodeScore], keys: Collection[str]) -> list[EpisodeScore]:
    """The scores of trials that were asked for, and those that stand for damage to the log."""
    from env_server.scoring.attempts import LABEL

    return [
        score
        for score in scores
        if (score.labels[LABEL] in keys if LABEL in score.labels else _is_damage(score))
    ]


def _is_damage(score: EpisodeScore) -> bool:
    """Whether a score without labels is not just that of a reset that failed."""
    return not score.labels and score.invalid_reason == "unreplayable"
