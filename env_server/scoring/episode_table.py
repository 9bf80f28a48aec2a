"""The table of single episodes: one flat row for each, for spreadsheets and data frames.

The cost, the tokens, the latency, the model and its temperature rest on what clients claim.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from env_server.scoring.score import EpisodeScore

WRONG_ANSWER = "wrong_answer"

COLUMNS = (
    "episode_id",
    "task_id",
    "env_id",
    "level",
    "agent",
    "model",
    "temperature",
    "run_id",
    "trial",
    "success",
    "valid",
    "invalid_reason",
    "error_type",
    "first_fault",
    "step_count",
    "tool_used",
    "total_tokens",
    "cost_usd",
    "latency_ms",
    "trace_path",
)


def episode_row(score: EpisodeScore, log: str = "log") -> dict[str, Any]:
    """A score as a row: plain JSON values by the names of `COLUMNS`.

    `error_type` says in one word what went wrong: why an episode is not valid ("api_error"); of one
    that is valid and failed, the first of these that there is: its end where it was cut short
    ("max_steps", "time_limit", "client_closed"), the code of its first fault ("unknown_tool"),
    "wrong_answer" where a validator of the answer did not hold, or else the name of the validator
    that did not ("state_equals"). null: it succeeded, or there is no task and no fault.

    `tool_used` is a list. `trace_path` is the log, "#" and the episode.

    Args:
        score: The score.
        log: Where the log is, for the `trace_path`.
    """
    labels, metrics = score.labels, score.metrics
    values = (
        score.episode_id,
        score.task_id or None,
        score.env_id,
        score.level or None,
        score.agent,
        ", ".join(dict.fromkeys(usage.model for usage in score.models)) or None,
        score.temperature,
        labels.get("run"),
        labels.get("trial"),
        score.success,
        score.valid,
        score.invalid_reason,
        _error_type(score),
        score.first_fault,
        score.steps,
        score.tools_used,
        int(metrics["total_tokens"]) if "total_tokens" in metrics else None,
        metrics.get("cost_usd"),
        metrics.get("latency_ms"),
        f"{log}#{score.episode_id}",
    )
    return dict(zip(COLUMNS, values, strict=True))


def write_episodes(scores: Iterable[EpisodeScore], path: Path, log: str = "log") -> None:
    """Writes episodes.jsonl: one JSON object a line, in ASCII, with null for what there is not.

    Args:
        scores: One line each.
        path: The file.
        log: See `episode_row`.

    Raises:
        OSError: The file cannot be written.
    """
    with path.open("w", encoding="ascii") as file:
        for score in scores:
            file.write(json.dumps(episode_row(score, log), allow_nan=False) + "\n")


def _error_type(score: EpisodeScore) -> str | None:
    if score.invalid_reason is not None:
        return score.invalid_reason
    if score.success or (score.success is None and score.fault is None):
        return None
    if score.end_reason not in ("final", "goal"):
        return score.end_reason
    return score.fault or _missed(score.verdict or {}) or score.end_reason


def _missed(verdict: Mapping[str, bool]) -> str | None:
    """What an ending did not meet; None: nothing."""
    missed = [name for name, held in verdict.items() if not held]
    if any(name.startswith("answer_") or name == "required_fields" for name in missed):
        return WRONG_ANSWER
    return missed[0] if missed else None
