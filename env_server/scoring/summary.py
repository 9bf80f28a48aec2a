"""A summary of scores: by agent, environment and level, with what is not valid beside it.

Levels are never pooled without their own rows beside the sum. What the numbers of a row are, is
said in `rows`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from env_server.scoring import attempts
from env_server.scoring.fingerprint import scorer_sha256
from env_server.scoring.names import short_names
from env_server.scoring.rows import Row, Theirs, row
from env_server.scoring.score import EpisodeScore
from railgym._version import __version__

__all__ = [
    "Group",
    "Row",
    "Summary",
    "Theirs",
    "reject_duplicates",
    "summarise",
    "write_scores",
]

NO_LEVEL = "none"
"""The level of a row of episodes without one, where others in its group have one."""


class Group(NamedTuple):
    """One agent in one environment; for a headline, in all of them.

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
        superseded: Attempts that later ones replaced, see `attempts`; they count nowhere else.
    """

    groups: list[Group]
    episodes: list[EpisodeScore]
    superseded: list[EpisodeScore] = []  # noqa: RUF012

    @property
    def rows(self) -> list[Row]:
        """The rows of all levels."""
        return [row for group in self.groups for row in group.levels]

    @property
    def headlines(self) -> list[Group]:
        """Agents over all environments: of whom most succeeds first, then who costs less."""
        members: dict[str, list[EpisodeScore]] = defaultdict(list)
        for score in self.episodes:
            members[score.agent].append(score)
        replaced: dict[str, list[EpisodeScore]] = defaultdict(list)
        for score in self.superseded:
            replaced[score.agent].append(score)
        groups = [_group(agent, "", scores, replaced[agent]) for agent, scores in members.items()]
        return sorted(groups, key=_rank)

    @property
    def levels(self) -> list[str]:
        """The levels of tasks, in order."""
        return sorted({row.level for row in self.rows} - {"", NO_LEVEL})

    @property
    def names(self) -> dict[str, str]:
        """A short name for every agent, see `names`."""
        rows = [row for group in self.groups for row in (group.total, *group.levels)]
        scores = [*self.episodes, *self.superseded]
        return short_names([row.agent for row in rows] + [score.agent for score in scores])

    def to_json(self) -> dict[str, Any]:
        """The summary as a JSON object: what stands in scores.json."""
        return {
            "railgym": __version__,
            "scorer_sha256": scorer_sha256(),
            "summary": [_plain(group) for group in self.groups],
            "episodes": [score.to_json() for score in self.episodes],
            "superseded": [score.to_json() for score in self.superseded],
        }


def summarise(scores: Iterable[EpisodeScore]) -> Summary:
    """Groups scores by agent, environment and level.

    Of several attempts at a trial one counts, see `attempts`. Of several valid episodes of one
    agent, run, task and trial the first counts; the others are invalid as "duplicate".
    """
    current, superseded = attempts.split(scores)
    episodes = reject_duplicates(current)
    by_group: dict[tuple[str, str], list[EpisodeScore]] = defaultdict(list)
    for score in episodes:
        by_group[score.agent, score.env_id].append(score)
    replaced: dict[tuple[str, str], list[EpisodeScore]] = defaultdict(list)
    for score in superseded:
        replaced[score.agent, score.env_id].append(score)
    groups = [
        _group(agent, env_id, members, replaced[agent, env_id])
        for (agent, env_id), members in sorted(by_group.items())
    ]
    return Summary(groups, episodes, superseded)


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
                score = score.without_result("duplicate")
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


def _group(
    agent: str,
    env_id: str,
    members: Sequence[EpisodeScore],
    superseded: Sequence[EpisodeScore],
) -> Group:
    """The rows of an agent.

    Args:
        agent: Whose they are.
        env_id: Where; empty: anywhere.
        members: The episodes.
        superseded: Attempts that later ones replaced.
    """
    levels = sorted({score.level for score in members})
    rows = [
        row(
            agent,
            env_id,
            level or (NO_LEVEL if len(levels) > 1 else ""),
            _of_level(members, level),
            _of_level(superseded, level),
        )
        for level in levels
    ]
    return Group(row(agent, env_id, "", members, superseded), rows)


def _rank(group: Group) -> tuple[float, float, str]:
    """Where an agent stands among the others."""
    total = group.total
    success, cost = total.success.mean, total.mean("cost_usd")
    return (
        1.0 if success is None else -success,
        float("inf") if cost is None else cost,
        total.agent,
    )


def _of_level(scores: Iterable[EpisodeScore], level: str) -> list[EpisodeScore]:
    return [score for score in scores if score.level == level]


def _plain(value: Any) -> Any:
    """Turns named tuples, at any depth, into objects."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: _plain(item) for key, item in value._asdict().items()}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
