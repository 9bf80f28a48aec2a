"""Results that others have published, beside ours on the same tasks.

They are facts from `published.json`, which names its source; nothing of them was run here. Ours
are computed by the metrics of the same suite, and only over the tasks that it has too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from env_server.scoring.statistics import Proportion, proportion
from env_server.scoring.summary import Group


class Row(NamedTuple):
    """One agent on the tasks of a published table.

    Attributes:
        agent: Its name.
        published: Whether others measured it.
        cells: For each task set of the table; None: not tried.
    """

    agent: str
    published: bool
    cells: list[Proportion | None]


class Table(NamedTuple):
    """A published table with our rows in it.

    Attributes:
        source: Who published it, where and when.
        note: How it was measured.
        envs: The environment of each column.
        rows: Ours first.
    """

    source: str
    note: str
    envs: list[str]
    rows: list[Row]


def beside(groups: Sequence[Group]) -> Table | None:
    """Puts our results beside the published ones.

    Returns:
        None where no agent of ours tried any of the tasks.
    """
    data = _data()
    ours: dict[str, list[Proportion | None]] = {}
    for group in groups:
        for i, task in enumerate(data["tasks"]):
            found = group.total.langchain.get(task["metric"])
            if (
                group.total.env_id == task["env_id"]
                and found is not None
                and found.mean is not None
            ):
                cells = ours.setdefault(group.total.agent, [None] * len(data["tasks"]))
                cells[i] = proportion(round(found.mean * found.n), found.n)
    if not ours:
        return None
    return Table(
        source=f"{data['publisher']}, {data['title']}, {data['date']}",
        note=data["note"],
        envs=[task["env_id"] for task in data["tasks"]],
        rows=[Row(agent, False, cells) for agent, cells in sorted(ours.items())] + published(),
    )


def published() -> list[Row]:
    """The published rows, in the order of the source."""
    data = _data()
    sizes = [task["n"] for task in data["tasks"]]
    return [
        Row(
            agent["name"],
            True,
            [proportion(won, n) for won, n in zip(agent["successes"], sizes, strict=True)],
        )
        for agent in data["agents"]
    ]


@cache
def _data() -> dict[str, Any]:
    text = files("env_server.scoring").joinpath("published.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data
