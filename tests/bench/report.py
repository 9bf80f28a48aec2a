"""Shows what was measured: tables for people, JSON for machines, a picture for both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contest import Result
from contestants import CONTESTANTS, STREAM_ECHO, UNARY_ECHO
from rich.console import Console
from rich.table import Table
from targets import Row, ratio_of

WIDTH = 130


def print_contest(results: Sequence[Result]) -> None:
    """Prints a table for each number of sessions."""
    console = Console(width=WIDTH)
    for sessions in sorted({result.sessions for result in results}):
        rows = {result.name: result for result in results if result.sessions == sessions}
        console.print(_contest_table(sessions, rows))
        for result in rows.values():
            if result.broken:
                console.print(f"{result.name}: {result.broken}", highlight=False, markup=False)
    names = {result.name for result in results}
    for contestant in CONTESTANTS:
        if contestant.name in names:
            console.print(f"{contestant.name}: {contestant.what}", highlight=False)


def print_rows(rows: Sequence[Row]) -> None:
    """Prints figures beside their targets."""
    table = Table(title="figures and targets")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("target", justify="right")
    table.add_column("met")
    for row in rows:
        met = {True: "yes", False: "NO", None: "" if row.value is not None else "not measured"}
        value = "" if row.value is None else f"{_number(row.value)} {row.unit}".strip()
        table.add_row(row.name, value, row.target, met[row.met])
    Console(width=WIDTH).print(table)


def as_json(machine: dict[str, Any], results: Sequence[Result], rows: Sequence[Row]) -> str:
    """Everything, the single rounds included."""
    contest = [
        {**result._asdict(), "samples": [sample._asdict() for sample in result.samples]}
        for result in results
    ]
    figures = [row._asdict() for row in rows]
    return json.dumps({"machine": machine, "contest": contest, "figures": figures}, indent=1)


def draw(results: Sequence[Result], path: Path) -> None:
    """Draws steps a second, the server's processor time a step, and memory a session."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(17, 5.5), layout="constrained")
    panels = {
        "steps a second": lambda one: one.median(lambda sample: sample.rate),
        "server's processor time a step (µs)": lambda one: one.median(lambda s: s.cpu) * 1e6,
        "server memory a session (KB)": lambda one: one.memory_kb,
    }
    played = [result for result in results if result.samples]
    for axis, (title, figure_of) in zip(axes, panels.items(), strict=True):
        for contestant in CONTESTANTS:
            mine = [one for one in played if one.name == contestant.name]
            points = [(one.sessions, value) for one in mine if (value := figure_of(one))]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=contestant.name)
        axis.set(title=title, xlabel="sessions", xscale="log", yscale="log")
        axis.grid(visible=True, alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _contest_table(sessions: int, rows: dict[str, Result]) -> Table:
    table = Table(title=f"{sessions:,} session{'s' if sessions > 1 else ''}")
    table.add_column("contestant")
    for name in ("steps/s", "of echo", "p50 ms", "p99 ms", "server CPU µs/step", "KB/session"):
        table.add_column(name, justify="right")
    for contestant in CONTESTANTS:
        if contestant.name in rows:
            table.add_row(*_contest_row(rows[contestant.name], rows))
    return table


def _contest_row(result: Result, rows: dict[str, Result]) -> list[str]:
    if not result.samples:
        return [result.name, "-"]
    echo = rows.get(STREAM_ECHO) or rows.get(UNARY_ECHO)
    if "echo" in result.name or result.name.endswith("Step"):
        echo = rows.get(UNARY_ECHO) if result.name != STREAM_ECHO else rows.get(STREAM_ECHO)
    ratio = ratio_of(result, echo, lambda sample: sample.rate) if echo else None
    return [
        result.name,
        _number(result.median(lambda sample: sample.rate)),
        "" if ratio is None else f"{ratio:.2f}",
        f"{result.median(lambda sample: sample.p50) * 1e3:,.2f}",
        f"{result.median(lambda sample: sample.p99) * 1e3:,.2f}",
        f"{result.median(lambda sample: sample.cpu) * 1e6:,.0f}",
        "" if result.memory_kb is None else _number(result.memory_kb),
    ]


def _number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
