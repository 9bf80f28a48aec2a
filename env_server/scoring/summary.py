"""A summary of scores: by agent, environment and level, with what is not valid beside it.

Levels are never pooled without their own rows beside the sum. Nothing is dropped in silence:
what is not valid is counted with its reason, and success has bounds for both ways in which it
could have gone.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from env_server.scoring import langchain
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
from railgym._version import __version__

OURS = [name for name in METRICS if "/" not in name]

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
        level: Of the tasks; empty for all levels, and without tasks.
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

    def mean(self, name: str) -> float | None:
        """Mean of a metric; None where no valid episode has it."""
        return self.metrics[name].mean if name in self.metrics else None


class Group(NamedTuple):
    """One agent in one environment.

    Attributes:
        total: All levels together.
        levels: One row for each level.
    """

    total: Row
    levels: list[Row]

    @property
    def rows(self) -> list[Row]:
        """What a table shows: the levels and their sum; a single level is its own sum."""
        return self.levels if len(self.levels) == 1 else [*self.levels, self.total]


class Summary(NamedTuple):
    """What a log amounts to.

    Attributes:
        groups: By agent and environment.
        episodes: The scores behind them, in the order of the log.
    """

    groups: list[Group]
    episodes: list[EpisodeScore]

    @property
    def rows(self) -> list[Row]:
        """The rows of all levels."""
        return [row for group in self.groups for row in group.levels]

    def to_json(self) -> dict[str, Any]:
        """The summary as a JSON object: what stands in scores.json."""
        return {
            "railgym": __version__,
            "summary": [_plain(group) for group in self.groups],
            "episodes": [score.to_json() for score in self.episodes],
        }


def summarise(scores: Iterable[EpisodeScore]) -> Summary:
    """Groups scores by agent, environment and level.

    Of several valid episodes of one agent, run, task and trial the first counts; the others are
    invalid as "duplicate".
    """
    episodes = reject_duplicates(scores)
    by_group: dict[tuple[str, str], list[EpisodeScore]] = defaultdict(list)
    for score in episodes:
        by_group[score.agent, score.env_id].append(score)
    groups = []
    for (agent, env_id), members in sorted(by_group.items()):
        levels = sorted({score.level for score in members})
        rows = [_row(agent, env_id, level, _of_level(members, level)) for level in levels]
        groups.append(Group(_row(agent, env_id, "", members), rows))
    return Summary(groups, episodes)


def reject_duplicates(scores: Iterable[EpisodeScore]) -> list[EpisodeScore]:
    """Marks episodes that try again what was tried already, so that no one can pick the better.

    A try is named by the labels "agent", "run" and "trial" and by its task. Without a label
    "trial" each episode is a try of its own. What is not valid may be tried again.
    """
    seen: set[tuple[str, str, str, str]] = set()
    judged = []
    for score in scores:
        labels = score.labels
        key = score.agent, labels.get("run", ""), score.task_id, labels.get("trial", "")
        if score.valid and score.task_id and "trial" in labels:
            if key in seen:
                score = _without_score(score, "duplicate")
            seen.add(key)
        judged.append(score)
    return judged


def write_scores(summary: Summary, path: Path) -> None:
    """Writes scores.json: RFC 8259, in ASCII, with null for what there is not.

    Raises:
        OSError: The file cannot be written.
    """
    text = json.dumps(summary.to_json(), allow_nan=False, indent=1)
    path.write_text(text + "\n", encoding="ascii")


def _without_score(score: EpisodeScore, reason: str) -> EpisodeScore:
    return score._replace(
        valid=False, invalid_reason=reason, success=None, reward=None, first_fault=None, metrics={}
    )


def _of_level(scores: Iterable[EpisodeScore], level: str) -> list[EpisodeScore]:
    return [score for score in scores if score.level == level]


def _row(agent: str, env_id: str, level: str, scores: Sequence[EpisodeScore]) -> Row:
    valid = [score for score in scores if score.valid]
    judged = [score for score in valid if score.success is not None]
    won = [score for score in judged if score.success]
    lost = [score for score in judged if not score.success]
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
        success=proportion(len(won), len(judged)),
        worst=len(won) / possible if possible else None,
        best=(len(won) + unknown) / possible if possible else None,
        metrics={name: spread(values) for name in OURS if (values := _values(valid, name))},
        first_faults=_count(score.first_fault or "unknown" for score in lost),
        recovered=_count(score.first_fault for score in won),
        convergence_failures=proportion(
            sum(score.first_fault == Capability.CONVERGENCE for score in lost), len(judged)
        ),
        faults=_fault_codes(valid),
        passes=[passes(k, tries) for k in TRIES] if any(len(t) > 1 for t in tries) else [],
        stable=stable(tries),
        langchain=_theirs(valid, len(scores) - len(valid)),
    )


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


def _plain(value: Any) -> Any:
    """Turns named tuples, at any depth, into objects."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: _plain(item) for key, item in value._asdict().items()}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
