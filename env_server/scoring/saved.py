"""Reads scores.json again: what `summary.write_scores` wrote, of this version or an earlier one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from env_server.errors import cut
from env_server.scoring.replay import Outcome
from env_server.scoring.score import EpisodeScore
from railgym.scores import ModelUsage

_TYPES = TypeAdapter(EpisodeScore, config=ConfigDict(strict=True, allow_inf_nan=False))


class NoScores(ValueError):
    """There is no scores.json, or something else in its place: it says where and what."""


def read_scores(path: Path) -> list[EpisodeScore]:
    """Reads the scores of a scores.json, those that were superseded first.

    Raises:
        NoScores: It cannot be read, or is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = [*content.get("superseded", []), *content["episodes"]]
        scores = [_score(row) for row in rows]
    except FileNotFoundError as e:
        made = f"`railgym score {path.parent} -o {path}` makes one"
        raise NoScores(f"expected a scores.json at {path}: {e.strerror}; {made}") from None
    except OSError as e:
        raise NoScores(f"expected a scores.json at {path}: {e.strerror}") from None
    except ValidationError as e:
        wrong = _first_misfit(e)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        wrong = f"{type(e).__name__}: {e}"
    else:
        return scores
    raise NoScores(f"expected a scores.json as Railgym writes it at {path}, got {wrong}")


def _score(row: dict[str, Any]) -> EpisodeScore:
    known = {name: row[name] for name in EpisodeScore._fields if name in row}
    models = [ModelUsage(**usage) for usage in row.get("models", [])]
    score = EpisodeScore(**{**known, "outcome": Outcome(row["outcome"]), "models": models})
    _TYPES.validate_python(score)
    return score


def _first_misfit(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field} = {cut(repr(first['input']))}: {first['msg'].lower()}"
