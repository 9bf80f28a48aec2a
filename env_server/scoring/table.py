"""A summary as tables for the terminal, at most 100 columns wide.

Agents go by short names; what they stand for is said below the first table. Text from a log is
shown as text: no markup, no control characters.
"""

from __future__ import annotations

from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from env_server.errors import printable
from env_server.scoring import langchain
from env_server.scoring.cells import number, seconds, short_env, significant, tokens
from env_server.scoring.compare import Comparison, Paired
from env_server.scoring.faults import Capability
from env_server.scoring.summary import Row, Summary

OURS = {
    "Intermediate steps correctness": "trajectory",
    "# steps / # expected steps": "step_ratio",
    "Correct Final State": "final_state",
    "correctness": "answer",
}
"""The metric of ours that asks what one of LangChain's asks."""

HEADLINE = (
    "Success by level, over the valid episodes of all environments; the best first.",
    "$, tokens, s: means of an episode, as claimed.",
)


def tables(summary: Summary) -> RenderableType:
    """All that a summary says: success, its cost, what is not valid, repeats, LangChain's."""
    parts: list[RenderableType] = [success_table(summary)]
    if any("model_calls" in row.metrics for row in summary.rows):
        parts.append(use_table(summary))
    parts += [Text(line) for line in notes(summary)]
    repeated = [row for group in summary.groups for row in group.rows if row.passes]
    if repeated:
        parts.append(_repeats(repeated, summary.names))
    compared = [group.total for group in summary.groups if group.total.langchain]
    if compared:
        parts.append(_langchain(compared, summary.names))
    return Lines(*parts)


def success_table(summary: Summary) -> RenderableType:
    """A row for each agent, and below it success by environment and level."""
    parts: list[RenderableType] = [headline_table(summary), *captions(*HEADLINE)]
    longer = [(short, name) for name, short in summary.names.items() if short != printable(name)]
    parts += [Text(f"{short} stands for {printable(name)}") for short, name in longer if name]
    parts += [
        _by_level(summary),
        *captions(
            "ratio: steps over those of the gold solution, for successes.",
            "und, sel, int, con: first faults of failures (understanding, selection, "
            "interpretation, convergence).",
        ),
    ]
    return Lines(*parts)


def headline_table(summary: Summary) -> Table:
    """A row for each agent: success by level side by side, and what it took; the best first."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Agents")
    table.add_column("agent", overflow="fold", min_width=8)
    levels = summary.levels
    for name in (*levels, "all", "95 % interval", "valid", "$", "tokens", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    names = summary.names
    for group in summary.headlines:
        by_level = {row.level: row.success.mean for row in group.levels}
        row = group.total
        cells = [
            names[row.agent],
            *(number(by_level[level]) if level in by_level else "" for level in levels),
            number(row.success.mean),
            _interval(row),
            f"{row.valid}/{row.episodes}",
            significant(row.mean("cost_usd")),
            tokens(row.mean("total_tokens")),
            seconds(row.mean("latency_ms")),
        ]
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _by_level(summary: Summary) -> Table:
    """Success with its interval, by agent, environment and level."""
    table = _table("Success by environment and level")
    table.add_column("level")
    # A task's reward is its success: only where there is none does it say more.
    rewards = ["reward"] if any(r.valid and not r.success.n for r in summary.rows) else []
    faults = [capability[:3] for capability in Capability]
    for name in ("valid", "success", "95 % interval", "ratio", *faults, *rewards):
        table.add_column(name, justify="right", no_wrap=True)
    names = summary.names
    for group in summary.groups:
        for row in group.rows:
            cells = [*_names(row, names), *_cells(row)]
            cells += [number(row.mean("total_reward")) for _ in rewards]
            table.add_row(*(Text(cell) for cell in cells), end_section=row is group.rows[-1])
    return table


def use_table(summary: Summary) -> RenderableType:
    """What an episode took by the claims of its agent, and what a success cost."""
    table = _table("Cost of an episode, and of a success")
    table.add_column("level")
    for name in ("steps", "turns", "tokens", "t/succ", "$", "$/succ", "s", "retries"):
        table.add_column(name, justify="right", no_wrap=True)
    names = summary.names
    for group in summary.groups:
        rows = [row for row in group.rows if "model_calls" in row.metrics]
        for row in rows:
            cells = [*_names(row, names), row.level or "all", *_use_cells(row)]
            table.add_row(*(Text(cell) for cell in cells), end_section=row is rows[-1])
    return Lines(
        table,
        *captions(
            "Medians of valid episodes, as claimed (retries: mean).",
            "/succ: of all of them together, over their successes.",
        ),
    )


def captions(*sentences: str) -> list[RenderableType]:
    """What stands below a table: a line for each sentence."""
    return [Text(sentence, style="dim") for sentence in sentences]


def notes(summary: Summary) -> list[str]:
    """What is not valid, with its reasons, what drifted, what does not count, what has no price."""
    lines = []
    names = summary.names
    for row in (group.total for group in summary.groups):
        name = f"{names[row.agent]} in {_name(row.env_id)}"
        if row.invalid:
            reasons = ", ".join(f"{count} {reason}" for reason, count in row.invalid.items())
            bounds = f"with them, success would be {number(row.worst)} to {number(row.best)}"
            lines.append(f"{name}: not valid: {reasons}; {bounds}")
        if row.drifted:
            lines.append(f"{name}: {row.drifted} scored although their replay diverged")
        if row.superseded:
            lines.append(f"{name}: {row.superseded} left out: a later attempt stands for them")
    for row in (group.total for group in summary.headlines):
        if row.unpriced:
            name = names[row.agent]
            lines.append(f"{name}: {row.unpriced} of unknown cost, in no sum or mean of costs")
    return lines


def comparison_table(comparison: Comparison, a: str, b: str) -> Table:
    """Success of two sides by environment and level, paired by task."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Success, paired by task")
    table.add_column("environment", overflow="fold", min_width=11, max_width=20)
    table.add_column("level")
    names = ("tasks", "A", "B", "B - A", "95 % interval", "better", "worse", "p", "shows")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    rows = [*comparison.levels, comparison.pooled]
    for paired in rows:
        name = short_env(paired.env_id) or "all"
        cells = [printable(name), paired.level or "all", *_paired_cells(paired)]
        table.add_row(*(Text(cell) for cell in cells), end_section=paired is rows[-2])
    table.caption = Text(
        f"A: {printable(a)}, B: {printable(b)}; p: exact McNemar; interval: paired bootstrap; "
        "shows: the smallest difference that so many tasks show with a power of 0.8"
    )
    return table


def beside_table(comparison: Comparison) -> Table:
    """What two sides used, beside each other, by environment and level."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Medians over the same tasks")
    table.add_column("environment", overflow="fold", min_width=11, max_width=20)
    table.add_column("level")
    table.add_column("metric", min_width=14)
    for name in ("tasks", "A", "B"):
        table.add_column(name, justify="right", min_width=8)
    for paired in [*comparison.levels, comparison.pooled]:
        names = [printable(short_env(paired.env_id)) or "all", paired.level or "all"]
        for i, (metric, beside) in enumerate(paired.metrics.items()):
            numbers = [str(beside.tasks), significant(beside.a), significant(beside.b)]
            cells = [*(names if i == 0 else ["", ""]), metric, *numbers]
            last = i == len(paired.metrics) - 1
            table.add_row(*(Text(cell) for cell in cells), end_section=last)
    return table


def differences(comparison: Comparison) -> list[str]:
    """What flipped which way, and what was not compared, a line each."""
    lines = [
        printable(f"{word}: {flip.task_id} ({flip.level}): {flip.a:.2f} to {flip.b:.2f}")
        for word, flips in (("better", comparison.better), ("worse", comparison.worse))
        for flip in flips
    ]
    left_out = {
        "only in A": comparison.only_a,
        "only in B": comparison.only_b,
        "without a valid try on one side": comparison.unjudged,
    }
    for why, task_ids in left_out.items():
        if task_ids:
            lines.append(printable(f"not compared, {why}: {', '.join(task_ids)}"))
    return lines


def _table(title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title)
    table.add_column("agent", overflow="fold", min_width=8)
    table.add_column("environment", overflow="fold", min_width=17, max_width=24)
    return table


def _cells(row: Row) -> list[str]:
    faults = [str(row.first_faults.get(capability, 0) or "·") for capability in Capability]
    return [
        row.level or "all",
        f"{row.valid}/{row.episodes}",
        number(row.success.mean),
        _interval(row),
        number(row.mean("step_ratio")),
        *faults,
    ]


def _interval(row: Row) -> str:
    low, high = row.success.low, row.success.high
    return "n/a" if low is None else f"{low:.2f} to {high:.2f}"


def _use_cells(row: Row) -> list[str]:
    return [
        number(row.median("steps"), 0),
        number(row.median("turns"), 0),
        tokens(row.median("total_tokens")),
        tokens(row.tokens_per_success),
        significant(row.median("cost_usd")),
        significant(row.cost_per_success),
        seconds(row.median("latency_ms")),
        number(row.mean("retries"), 1),
    ]


def _paired_cells(paired: Paired) -> list[str]:
    interval = "n/a" if paired.low is None else f"{paired.low:+.2f} to {paired.high:+.2f}"
    return [
        str(paired.tasks),
        number(paired.a),
        number(paired.b),
        f"{paired.difference:+.2f}",
        interval,
        str(paired.better),
        str(paired.worse),
        "< 0.001" if paired.p_value < 0.0005 else number(paired.p_value, 3),
        number(paired.smallest),
    ]


def _repeats(rows: list[Row], names: dict[str, str]) -> Table:
    table = _table("Repeats")
    table.add_column("level")
    for tries in rows[0].passes:
        table.add_column(f"pass@{tries.k}", justify="right")
        table.add_column(f"pass^{tries.k}", justify="right")
    table.add_column("stable tasks", justify="right")
    for row in rows:
        cells = [*_names(row, names), row.level or "all"]
        for tries in row.passes:
            cells += [number(tries.at_least_one), number(tries.all_of_them)]
        cells.append(f"{row.stable.held}/{row.stable.n}")
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _langchain(rows: list[Row], names: dict[str, str]) -> Table:
    table = _table("LangChain's metrics, and ours in brackets")
    for name in langchain.METRICS:
        table.add_column(f"{name} ({OURS[name]})", justify="right", max_width=20)
    for row in rows:
        cells = _names(row, names)
        for name in langchain.METRICS:
            theirs = row.langchain[name].mean if name in row.langchain else None
            cells.append(f"{number(theirs)} ({number(row.mean(OURS[name]))})")
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _names(row: Row, names: dict[str, str]) -> list[str]:
    return [names[row.agent], _name(short_env(row.env_id))]


def _name(text: str) -> str:
    return printable(text) or "(none)"
