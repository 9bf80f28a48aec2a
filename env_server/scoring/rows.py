"""A row of a summary: what some episodes of one agent in one environment amount to.

Nothing is dropped in silence: what is not valid is counted with its reason, and success has bounds
for both ways in which it could have gone. What was used (steps, tokens, money, time) stands beside
what was achieved, with its middle and its spread.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from env_server.scoring import claims, langchain
from env_server.scoring.faults import Capability
from env_server.scoring.metrics import METRICS
from env_server.scoring.score import EpisodeScore
from env_server.scoring.statistics import (
    Passes,
    Proportion,
    Spread,
    passes,
    proportion,
    spread,
    stable,
)

NAMES = [*(name for name in METRICS if "/" not in name), *claims.METRICS]
"""The metrics of a row."""

TRIES = (1, 3, 5)
"""The k of pass@k and pass^k."""


class Theirs(NamedTuple):
    """A mean of one of LangChain's metrics, with the denominators in use there.

    Attributes:
        n: Valid episodes that have the metric.
        mean: Over these: what was not valid is dropped. None: there are none.
        errors_as_zero: Over these and all episodes of the row that are not valid, each as 0.
    """

    n: int
    mean: float | None
    errors_as_zero: float | None


class Row(NamedTuple):
    """What some episodes of one agent in one environment amount to.

    Attributes:
        agent: The label "agent"; empty where there is none.
        env_id: The environment.
        level: Of the tasks; empty for all of them, see `summary.NO_LEVEL` too.
        episodes: How many there are.
        valid: How many of them say something of the agent; the rest is left out of all that
            follows but `worst` and `best`.
        invalid: How many of the others there are, by reason.
        drifted: How many valid ones diverged in their replay.
        success: How many met every validator; of none without tasks.
        worst: Success if all that is not valid had failed; None without tasks.
        best: Success if all that is not valid had succeeded; None without tasks.
        metrics: Where each metric lies, by name, over the valid episodes that have it.
        first_faults: By capability, of the failures; "unknown" where no rule could tell.
        recovered: By capability, of the successes that had a fault.
        convergence_failures: How many failed by convergence.
        faults: Steps with a fault, by code.
        passes: pass@k and pass^k; empty where no task was tried twice.
        stable: Of the tasks that were tried twice or more, those that succeeded every time.
        langchain: LangChain's metrics by their own names; those that apply.
        superseded: Attempts that later ones replaced; they are not among the episodes.
        spent_usd: What all episodes cost, those that are not valid and those that were superseded
            included, as far as it is known; None: of none it is.
        unpriced: Episodes that called a model at a cost that is not known: they are in no mean of
            costs.
        cost_per_success: Of the valid episodes whose cost is known, that cost over their
            successes; None: there is none.
        tokens_per_success: Likewise, of those whose tokens are known.
    """

    agent: str
    env_id: str
    level: str
    episodes: int
    valid: int
    invalid: dict[str, int]
    drifted: int
    success: Proportion
    worst: float | None
    best: float | None
    metrics: dict[str, Spread]
    first_faults: dict[str, int]
    recovered: dict[str, int]
    convergence_failures: Proportion
    faults: dict[str, int]
    passes: list[Passes]
    stable: Proportion
    langchain: dict[str, Theirs]
    superseded: int = 0
    spent_usd: float | None = None
    unpriced: int = 0
    cost_per_success: float | None = None
    tokens_per_success: float | None = None

    def mean(self, name: str) -> float | None:
        """Mean of a metric; None where no valid episode has it."""
        return self.metrics[name].mean if name in self.metrics else None

    def median(self, name: str) -> float | None:
        """Median of a metric; None where no valid episode has it."""
        return self.metrics[name].median if name in self.metrics else None


def row(
    agent: str,
    env_id: str,
    level: str,
    scores: Sequence[EpisodeScore],
    superseded: Sequence[EpisodeScore] = (),
) -> Row:
    """Makes the row of some episodes.

    Args:
        agent: Whose they are.
        env_id: Where they are.
        level: Of their tasks; empty: of any.
        scores: Theirs.
        superseded: Attempts that were left out of them. What they cost was spent all the same.
    """
    valid = [score for score in scores if score.valid]
    judged = [score for score in valid if score.success is not None]
    won = sum(bool(score.success) for score in judged)
    unknown = sum(not score.valid and bool(score.task_id) for score in scores)
    possible = len(judged) + unknown
    tries = _tries(judged)
    return Row(
        agent=agent,
        env_id=env_id,
        level=level,
        episodes=len(scores),
        valid=len(valid),
        invalid=_count(score.invalid_reason for score in scores if not score.valid),
        drifted=sum(score.drifted for score in valid),
        success=proportion(won, len(judged)),
        worst=won / possible if possible else None,
        best=(won + unknown) / possible if possible else None,
        metrics={name: spread(values) for name in NAMES if (values := _values(valid, name))},
        **_broken(judged),
        faults=_fault_codes(valid),
        passes=[passes(k, tries) for k in TRIES] if any(len(t) > 1 for t in tries) else [],
        stable=stable(tries),
        langchain=_theirs(valid, len(scores) - len(valid)),
        superseded=len(superseded),
        **_use(scores, superseded, judged),
    )


def _broken(judged: Sequence[EpisodeScore]) -> dict[str, Any]:
    """What broke first, in failures and in successes."""
    lost = [score for score in judged if not score.success]
    late = sum(score.first_fault == Capability.CONVERGENCE for score in lost)
    return {
        "first_faults": _count(score.first_fault or "unknown" for score in lost),
        "recovered": _count(score.first_fault for score in judged if score.success),
        "convergence_failures": proportion(late, len(judged)),
    }


def _use(
    scores: Sequence[EpisodeScore],
    superseded: Sequence[EpisodeScore],
    judged: Sequence[EpisodeScore],
) -> dict[str, Any]:
    """What was used in all, and for each success."""
    costs = _values((*scores, *superseded), "cost_usd")
    return {
        "spent_usd": math.fsum(costs) if costs else None,
        "unpriced": sum(bool(s.models) and "cost_usd" not in s.metrics for s in scores),
        "cost_per_success": _per_success(judged, "cost_usd"),
        "tokens_per_success": _per_success(judged, "total_tokens"),
    }


def _per_success(scores: Iterable[EpisodeScore], name: str) -> float | None:
    """The sum of a metric over the successes, of the episodes that have it."""
    known = [score for score in scores if name in score.metrics]
    successes = sum(bool(score.success) for score in known)
    return math.fsum(_values(known, name)) / successes if successes else None


def _values(scores: Iterable[EpisodeScore], name: str) -> list[float]:
    return [score.metrics[name] for score in scores if name in score.metrics]


def _count(names: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in names if name is not None).items()))


def _fault_codes(scores: Iterable[EpisodeScore]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for score in scores:
        for name, value in score.metrics.items():
            if name.startswith("faults/"):
                counted[name.removeprefix("faults/")] += int(value)
    return dict(sorted(counted.items()))


def _tries(scores: Iterable[EpisodeScore]) -> list[list[bool]]:
    by_task: dict[str, list[bool]] = defaultdict(list)
    for score in scores:
        by_task[score.task_id].append(bool(score.success))
    return list(by_task.values())


def _theirs(scores: Sequence[EpisodeScore], errors: int) -> dict[str, Theirs]:
    found = {}
    for name in langchain.METRICS:
        values = _values(scores, f"langchain/{name}")
        if values:
            mean = spread(values).mean
            found[name] = Theirs(len(values), mean, sum(values) / (len(values) + errors))
    return found
