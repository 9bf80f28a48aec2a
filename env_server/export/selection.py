"""Which episodes of a log are exported, and with which score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from env_server.log import episodes
from env_server.registry import Registry
from env_server.scoring.score import EpisodeScore, score_log
from env_server.scoring.summary import summarise
from env_server.scoring.trace import Trace, trace

Keep: TypeAlias = Literal["successful", "valid", "all"]

KEEPS: dict[Keep, Callable[[EpisodeScore], bool]] = {
    "successful": lambda score: score.valid and score.success is True,
    "valid": lambda score: score.valid,
    "all": lambda score: True,
}
"""By name, which episodes are kept. An attempt that a later one superseded never is."""


class Scored(NamedTuple):
    """An episode with its score and what happened in it."""

    score: EpisodeScore
    trace: Trace


def scored(
    path: Path,
    registry: Registry,
    keep: Keep,
    scores: Iterable[EpisodeScore] | None = None,
) -> Iterator[Scored]:
    """Replays a log and picks episodes of it, in the order of the log.

    Args:
        path: The log.
        registry: What it is replayed with.
        keep: Which of the episodes that count.
        scores: Of the log, those that count at all; None: every one, at the usual prices.

    Raises:
        NotALog: There is nothing at the path, or something else than a log.
    """
    summary = summarise(score_log(path, registry) if scores is None else scores)
    kept = {score.episode_id: score for score in summary.episodes if KEEPS[keep](score)}
    for logged in episodes(path):
        if logged.episode_id and logged.episode_id in kept:
            yield Scored(kept[logged.episode_id], trace(logged, registry))
