"""A summary as tables for the terminal, at most 100 columns wide.

Text from a log is shown as text: no markup, no control characters.
"""

from __future__ import annotations

from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from env_server.scoring import langchain
from env_server.scoring.faults import Capability
from env_server.scoring.summary import Row, Summary

OURS = {
    "Intermediate steps correctness": "trajectory",
    "# steps / # expected steps": "step_ratio",
    "Correct Final State": "final_state",
    "correctness": "answer",
}
"""The metric of ours that asks what one of LangChain's asks."""


def tables(summary: Summary) -> RenderableType:
    """All that a summary says: success, what is not valid, repeats, and LangChain's metrics."""
    parts: list[RenderableType] = [success_table(summary)]
    parts += [Text(line) for line in notes(summary)]
    repeated = [group.total for group in summary.groups if group.total.passes]
    if repeated:
        parts.append(_repeats(repeated))
    compared = [group.total for group in summary.groups if group.total.langchain]
    if compared:
        parts.append(_langchain(compared))
    return Lines(*parts)


def success_table(summary: Summary) -> Table:
    """The headline: agent, environment and level, with success and its interval."""
    table = _table("Success by level")
    table.add_column("level")
    # A task's reward is its success: only where there is none does it say more.
    rewards = ["reward"] if any(not row.success.n for row in summary.rows) else []
    for name in (
        "valid",
        "success",
        "95 % interval",
        "ratio",
        *(c[:3] for c in Capability),
        *rewards,
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for group in summary.groups:
        for i, row in enumerate(group.rows):
            names = _names(row) if i == 0 else ["", ""]
            cells = [*names, *_cells(row), *(number(row.mean("total_reward")) for _ in rewards)]
            last = i == len(group.rows) - 1
            table.add_row(*(Text(cell) for cell in cells), end_section=last)
    table.caption = (
        "ratio: steps over those of the gold solution, for successes; "
        "und, sel, int, con: first faults of failures"
    )
    return table


def notes(summary: Summary) -> list[str]:
    """What is not valid, with its reasons, and what drifted."""
    lines = []
    for row in (group.total for group in summary.groups):
        name = f"{_name(row.agent)} in {_name(row.env_id)}"
        if row.invalid:
            reasons = ", ".join(f"{count} {reason}" for reason, count in row.invalid.items())
            bounds = f"with them, success would be {number(row.worst)} to {number(row.best)}"
            lines.append(f"{name}: not valid: {reasons}; {bounds}")
        if row.drifted:
            lines.append(f"{name}: {row.drifted} scored although their replay diverged")
    return lines


def number(value: float | None, digits: int = 2) -> str:
    """A number for people; "n/a" where there is none."""
    return "n/a" if value is None else f"{value:.{digits}f}"


def short_env(env_id: str) -> str:
    """The id of an environment without our own namespace."""
    return env_id.removeprefix("railgym/")


def printable(text: str) -> str:
    """Text with its control characters shown as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _table(title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title)
    table.add_column("agent", overflow="fold", min_width=8, max_width=16)
    table.add_column("environment", overflow="fold", min_width=17, max_width=24)
    return table


def _cells(row: Row) -> list[str]:
    proportion = row.success
    interval = "n/a" if proportion.low is None else f"{proportion.low:.2f} to {proportion.high:.2f}"
    faults = [str(row.first_faults.get(capability, 0) or "·") for capability in Capability]
    return [
        row.level or "all",
        f"{row.valid}/{row.episodes}",
        number(proportion.mean),
        interval,
        number(row.mean("step_ratio")),
        *faults,
    ]


def _repeats(rows: list[Row]) -> Table:
    table = _table("Repeats")
    for tries in rows[0].passes:
        table.add_column(f"pass@{tries.k}", justify="right")
        table.add_column(f"pass^{tries.k}", justify="right")
    table.add_column("stable tasks", justify="right")
    for row in rows:
        cells = _names(row)
        for tries in row.passes:
            cells += [number(tries.at_least_one), number(tries.all_of_them)]
        cells.append(f"{row.stable.held}/{row.stable.n}")
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _langchain(rows: list[Row]) -> Table:
    table = _table("LangChain's metrics, and ours in brackets")
    for name in langchain.METRICS:
        table.add_column(f"{name} ({OURS[name]})", justify="right", max_width=20)
    for row in rows:
        cells = _names(row)
        for name in langchain.METRICS:
            theirs = row.langchain[name].mean if name in row.langchain else None
            cells.append(f"{number(theirs)} ({number(row.mean(OURS[name]))})")
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _names(row: Row) -> list[str]:
    return [_name(row.agent), _name(short_env(row.env_id))]


def _name(text: str) -> str:
    return printable(text) or "(none)"
