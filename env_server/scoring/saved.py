"""Reads scores.json again: what `summary.write_scores` wrote, of this version or an earlier one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from env_server.scoring.replay import Outcome
from env_server.scoring.score import EpisodeScore
from railgym.scores import ModelUsage


class NoScores(ValueError):
    """There is no scores.json, or something else in its place: it says where and what."""


def read_scores(path: Path) -> list[EpisodeScore]:
    """Reads the scores of a scores.json, those that were superseded first.

    Raises:
        NoScores: It cannot be read, or is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [_score(row) for row in [*content.get("superseded", []), *content["episodes"]]]
    except OSError as e:
        raise NoScores(f"expected a scores.json at {path}: {e.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        wrong = f"{type(e).__name__}: {e}"
        raise NoScores(
            f"expected a scores.json as Railgym writes it at {path}, got {wrong}"
        ) from None


def _score(row: dict[str, Any]) -> EpisodeScore:
    known = {name: row[name] for name in EpisodeScore._fields if name in row}
    models = [ModelUsage(**usage) for usage in row.get("models", [])]
    return EpisodeScore(**{**known, "outcome": Outcome(row["outcome"]), "models": models})
