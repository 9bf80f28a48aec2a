"""Attempts at one and the same trial: which of them counts.

The label "key" of an episode is a digest of all that its trial depends on. A run that goes on after
something broke tries again what has no valid episode, and one that goes on with another prompt or
another version of a task tries everything again. So a log may hold several attempts at a trial.
One counts; the others are superseded, and are in no denominator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from env_server.scoring.score import EpisodeScore

LABEL = "key"
SUPERSEDED = "superseded"

Trial: TypeAlias = tuple[str, ...]


class Attempts(NamedTuple):
    """Scores, told apart.

    Attributes:
        current: Those that count, in the order in which they came.
        superseded: The others, likewise; they are not valid.
    """

    current: list[EpisodeScore]
    superseded: list[EpisodeScore]


def split(scores: Iterable[EpisodeScore]) -> Attempts:
    """Picks of the attempts at each trial the first valid one, or else the latest.

    Where their keys differ, only those with the latest key are looked at. Without a label "key"
    each episode is a trial of its own. What was superseded stays so.

    Args:
        scores: In the order of the log.
    """
    came = list(scores)
    latest = {_trial(score): score.labels[LABEL] for score in came if _competes(score)}
    chosen: dict[Trial, int] = {}
    for i, score in enumerate(came):
        trial = _trial(score)
        if not _competes(score) or score.labels[LABEL] != latest[trial]:
            continue
        if trial not in chosen or not came[chosen[trial]].valid:
            chosen[trial] = i
    counting = set(chosen.values())
    found = Attempts([], [])
    for i, score in enumerate(came):
        if i in counting or (LABEL not in score.labels and score.invalid_reason != SUPERSEDED):
            found.current.append(score)
        else:
            found.superseded.append(_superseded(score))
    return found


def _competes(score: EpisodeScore) -> bool:
    return LABEL in score.labels and score.invalid_reason != SUPERSEDED


def _trial(score: EpisodeScore) -> Trial:
    labels = score.labels
    return score.env_id, score.task_id, score.agent, labels.get("run", ""), labels.get("trial", "")


def _superseded(score: EpisodeScore) -> EpisodeScore:
    """The score as one that does not count; why it was not valid is kept in words."""
    if score.invalid_reason == SUPERSEDED:
        return score
    detail = score.detail or score.invalid_reason or ""
    return score.without_result(SUPERSEDED)._replace(detail=detail)
