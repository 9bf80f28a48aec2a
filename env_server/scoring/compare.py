"""Two agents, or two runs of one, on the same tasks: what differs, and how sure that is.

Compared is task by task, never average with average: of the tries at a task the share that
succeeded counts, so that each task counts once. What is not valid is left out on both sides, and
what only one side tried is named. Nothing is compared across tasks that are not the same.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from env_server.scoring.score import EpisodeScore
from env_server.scoring.statistics import CONFIDENCE, mcnemar, mean_interval, smallest_difference

BESIDE = ("step_ratio", "steps", "tool_calls", "total_tokens", "cost_usd", "latency_ms")
"""The metrics that stand beside success."""


WHY = (
    "p decides, for the test is exact; a bootstrap interval is too narrow where few tasks differ, "
    "and weighs by how much they do, where p counts which way"
)
"""Why an interval and the test may disagree."""


class DifferentTasks(ValueError):
    """Tasks of one name that are not the same on both sides.

    Attributes:
        task_ids: Their names.
    """

    def __init__(self, task_ids: Sequence[str]) -> None:
        """Names them."""
        super().__init__("expected the same tasks on both sides, got others: " + _list(task_ids))
        self.task_ids = task_ids


class NothingInCommon(ValueError):
    """No task has a valid try on both sides."""


class Tried(NamedTuple):
    """The valid tries of one side at one task.

    Attributes:
        task_id: The task.
        env_id: Its environment.
        level: Its level.
        success: Share of the tries that succeeded.
        metrics: Means over the tries.
    """

    task_id: str
    env_id: str
    level: str
    success: float
    metrics: Mapping[str, float]


class Flip(NamedTuple):
    """A task whose success is another one on the second side.

    Attributes:
        task_id: The task.
        level: Its level.
        a: Share of successes on the first side.
        b: On the second.
    """

    task_id: str
    level: str
    a: float
    b: float


class Beside(NamedTuple):
    """A metric on both sides.

    Attributes:
        tasks: That have it on both.
        a: Median over these, on the first side.
        b: On the second.
    """

    tasks: int
    a: float
    b: float


class Paired(NamedTuple):
    """Success on some tasks that both sides tried.

    Attributes:
        env_id: Of the tasks; empty: all.
        level: Of the tasks; empty: all.
        tasks: How many.
        a: Mean success on the first side.
        b: On the second.
        difference: `b` less `a`.
        low: Lower end of the paired bootstrap 95 % interval of the difference; None where it is
            the same for every task.
        high: Its upper end.
        better: Tasks on which the second side succeeds more often.
        worse: Tasks on which it succeeds less often.
        p_value: Exact McNemar test, two-sided, of `better` against `worse`. It says whether there
            is a difference; the interval, how large one may be.
        smallest: The smallest difference that so many tasks show with a power of 0.8; None: none.
        metrics: Those of `BESIDE` that both sides have.
    """

    env_id: str
    level: str
    tasks: int
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    better: int
    worse: int
    p_value: float
    smallest: float | None
    metrics: dict[str, Beside]

    @property
    def disagrees(self) -> bool:
        """Whether the interval leaves out 0 where the test sees no difference, or the reverse."""
        if self.low is None or self.high is None:
            return False
        return (self.low > 0 or self.high < 0) != (self.p_value <= 1 - CONFIDENCE)


class Comparison(NamedTuple):
    """What two sides have in common and what not.

    Attributes:
        pooled: All tasks together.
        levels: Those of each environment and level.
        better: Tasks on which the second side succeeds more often.
        worse: Tasks on which it succeeds less often.
        only_a: Tasks that only the first side tried.
        only_b: Tasks that only the second side tried.
        unjudged: Tasks that both tried, without a valid try on one side or on both.
    """

    pooled: Paired
    levels: list[Paired]
    better: list[Flip]
    worse: list[Flip]
    only_a: list[str]
    only_b: list[str]
    unjudged: list[str]

    def to_json(self) -> dict[str, Any]:
        """The comparison as a JSON object."""
        return {
            "pooled": _paired_json(self.pooled),
            "levels": [_paired_json(paired) for paired in self.levels],
            "better": [flip._asdict() for flip in self.better],
            "worse": [flip._asdict() for flip in self.worse],
            "only_a": self.only_a,
            "only_b": self.only_b,
            "unjudged": self.unjudged,
            "notes": self.notes,
        }

    @property
    def notes(self) -> list[str]:
        """How to read what looks like a contradiction, a line each."""
        places = [
            f"{paired.env_id or 'all'} {paired.level}".strip()
            for paired in (*self.levels, self.pooled)
            if paired.disagrees
        ]
        return [f"interval and p disagree on {_list(places)}: {WHY}"] if places else []


def compare(a: Iterable[EpisodeScore], b: Iterable[EpisodeScore]) -> Comparison:
    """Compares two sides, each of one agent.

    Raises:
        DifferentTasks: Tasks of one name have other digests, or none.
        NothingInCommon: No task has a valid try on both sides.
    """
    a, b = _of_tasks(a), _of_tasks(b)
    ids_a, ids_b = {s.task_id for s in a}, {s.task_id for s in b}
    _check_digests(a, b, ids_a & ids_b)
    tried_a, tried_b = _tried(a), _tried(b)
    pairs = [(tried_a[i], tried_b[i]) for i in sorted(tried_a.keys() & tried_b.keys())]
    if not pairs:
        raise NothingInCommon("expected a task with a valid try on both sides, got none")
    groups: dict[tuple[str, str], list[tuple[Tried, Tried]]] = defaultdict(list)
    for pair in pairs:
        groups[pair[0].env_id, pair[0].level].append(pair)
    flips = [Flip(x.task_id, x.level, x.success, y.success) for x, y in pairs]
    return Comparison(
        pooled=_paired("", "", pairs),
        levels=[_paired(*name, members) for name, members in sorted(groups.items())],
        better=[flip for flip in flips if flip.b > flip.a],
        worse=[flip for flip in flips if flip.b < flip.a],
        only_a=sorted(ids_a - ids_b),
        only_b=sorted(ids_b - ids_a),
        unjudged=sorted((ids_a & ids_b) - {x.task_id for x, _ in pairs}),
    )


def _of_tasks(scores: Iterable[EpisodeScore]) -> list[EpisodeScore]:
    return [score for score in scores if score.task_id]


def _check_digests(
    a: Sequence[EpisodeScore], b: Sequence[EpisodeScore], common: Iterable[str]
) -> None:
    digests: dict[str, set[str]] = defaultdict(set)
    for score in (*a, *b):
        digests[score.task_id].add(score.task_sha256)
    wrong = [i for i in sorted(common) if len(digests[i]) > 1 or "" in digests[i]]
    if wrong:
        raise DifferentTasks(wrong)


def _tried(scores: Iterable[EpisodeScore]) -> dict[str, Tried]:
    """The valid tries at each task."""
    by_task: dict[str, list[EpisodeScore]] = defaultdict(list)
    for score in scores:
        if score.valid and score.success is not None:
            by_task[score.task_id].append(score)
    return {task_id: _together(tries) for task_id, tries in by_task.items()}


def _together(tries: Sequence[EpisodeScore]) -> Tried:
    first = tries[0]
    found = {name: [s.metrics[name] for s in tries if name in s.metrics] for name in BESIDE}
    return Tried(
        first.task_id,
        first.env_id,
        first.level,
        statistics.fmean(bool(score.success) for score in tries),
        {name: statistics.fmean(values) for name, values in found.items() if values},
    )


def _paired(env_id: str, level: str, pairs: Sequence[tuple[Tried, Tried]]) -> Paired:
    differences = [y.success - x.success for x, y in pairs]
    better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    low, high = mean_interval(differences) or (None, None)
    return Paired(
        env_id=env_id,
        level=level,
        tasks=len(pairs),
        a=statistics.fmean(x.success for x, _ in pairs),
        b=statistics.fmean(y.success for _, y in pairs),
        difference=statistics.fmean(differences),
        low=low,
        high=high,
        better=better,
        worse=worse,
        p_value=mcnemar(better, worse),
        smallest=smallest_difference(len(pairs), better + worse),
        metrics={name: found for name in BESIDE if (found := _beside(name, pairs))},
    )


def _beside(name: str, pairs: Sequence[tuple[Tried, Tried]]) -> Beside | None:
    both = [(x, y) for x, y in pairs if name in x.metrics and name in y.metrics]
    if not both:
        return None
    return Beside(
        len(both),
        statistics.median(x.metrics[name] for x, _ in both),
        statistics.median(y.metrics[name] for _, y in both),
    )


def _paired_json(paired: Paired) -> dict[str, Any]:
    metrics = {name: beside._asdict() for name, beside in paired.metrics.items()}
    return {**paired._asdict(), "metrics": metrics}


def _list(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
