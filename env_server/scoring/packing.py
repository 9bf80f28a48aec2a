"""Packs episodes into a page: compressed JSON in base64, which is inert wherever it stands.

The page's own script unpacks a block when somebody opens an episode of it. What it must show
exactly (arguments, observations, claims) is text in the JSON and not numbers, so that no digit
is lost in a browser.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from env_server.arguments import canonical_json
from env_server.scoring.cells import short_env
from env_server.scoring.score import EpisodeScore
from env_server.scoring.trace import Step, Trace

BLOCK = 50
"""Episodes of a block: few enough to open at once, enough to compress well."""

COLUMNS = {
    "episode": "text",
    "agent": "text",
    "task": "text",
    "level": "text",
    "environment": "text",
    "result": "text",
    "end": "text",
    "first fault": "text",
    "steps": "number",
    "tokens": "number",
    "cost USD": "number",
    "latency ms": "number",
    "replay": "text",
    "detail": "text",
}
"""The columns of the list of episodes, in order, with what they are sorted as."""


class Packed(NamedTuple):
    """The episodes of a page.

    Attributes:
        listing: The list, one row for each episode.
        blocks: `BLOCK` episodes each, in the order of the list.
    """

    listing: str
    blocks: list[str]


def pack(
    scores: Sequence[EpisodeScore], traces: Iterable[Trace], names: Mapping[str, str]
) -> Packed:
    """Packs scores, and the traces of those episodes that have one.

    Args:
        scores: In the order of the list.
        traces: In any order.
        names: Short names of agents.
    """
    known = {trace.episode_id: json.dumps(_trace(trace), allow_nan=False) for trace in traces}
    listing = {
        "block": BLOCK,
        "names": dict(names),
        "columns": [{"name": name, "kind": kind} for name, kind in COLUMNS.items()],
        "rows": [_row(score) for score in scores],
    }
    blocks = [
        _packed(f"[{','.join(_episode(score, known) for score in some)}]")
        for some in _batches(scores)
    ]
    return Packed(_packed(json.dumps(listing, allow_nan=False)), blocks)


def result(score: EpisodeScore) -> str:
    """How an episode went, in a word or two."""
    if not score.valid:
        return f"not valid: {score.invalid_reason}"
    if score.success is None:
        return "n/a"
    return "success" if score.success else "failure"


def _row(score: EpisodeScore) -> list[Any]:
    metrics = score.metrics
    detail = f"step {score.step}: {score.detail}" if score.detail else ""
    return [
        score.episode_id,
        score.agent,
        score.task_id,
        score.level,
        short_env(score.env_id),
        result(score),
        score.end_reason or "",
        score.first_fault or "",
        score.steps,
        metrics.get("total_tokens"),
        metrics.get("cost_usd"),
        metrics.get("latency_ms"),
        "DRIFTED" if score.drifted else str(score.outcome),
        detail,
    ]


def _episode(score: EpisodeScore, known: dict[str, str]) -> str:
    about = {
        "metrics": dict(sorted(score.metrics.items())),
        "verdict": score.verdict,
        "labels": dict(sorted(score.labels.items())),
        "reward": score.reward,
    }
    trace = known.get(score.episode_id, "null")
    return f'{{"score":{json.dumps(about, allow_nan=False)},"trace":{trace}}}'


def _trace(trace: Trace) -> dict[str, Any]:
    return {
        "instruction": trace.instruction,
        "observation": trace.observation,
        "env_version": trace.env_version,
        "start_time": trace.start_time // 1_000_000,
        "steps": [_step(step) for step in trace.steps],
        "claims": [
            {"turn": claim.get("turn"), "json": canonical_json(claim)} for claim in trace.claims
        ],
        "faults": trace.faults,
        "unseen": trace.unseen,
    }


def _step(step: Step) -> dict[str, Any]:
    """A step without what is empty: most of it is, in most steps."""
    fields = step._asdict() | {"time": step.time // 1_000_000, "changes": list(step.changes)}
    return {name: value for name, value in fields.items() if value not in ("", [], None)}


def _batches(scores: Sequence[EpisodeScore]) -> Iterator[Sequence[EpisodeScore]]:
    for start in range(0, len(scores), BLOCK):
        yield scores[start : start + BLOCK]


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")
