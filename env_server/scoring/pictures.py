"""Pictures of a summary, as self-contained SVG that is readable on light and dark ground.

Colours follow the reader's own setting. Nothing is drawn from more than the summary's numbers:
episodes that fall on one point are one mark, whose area grows with their number.
"""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from env_server.errors import printable
from env_server.scoring.faults import Capability
from env_server.scoring.statistics import proportion
from env_server.scoring.summary import Row, Summary
from env_server.scoring.table import short_env

COLOURS = ("#2a7fba", "#e08a1e", "#1f9e77", "#c0568f", "#8a6fd1", "#a8762f")
"""Told apart by colour-blind readers too, and clear on white and on black."""

INK = "#010203"
"""Stands for the reader's text colour until the SVG is written."""

STYLE = "svg{color:#1c1e21}@media(prefers-color-scheme:dark){svg{color:#dfe2e6}}"

MAX_AGENTS = 20
"""With more, names would leave no room for what is drawn; the table has them all."""

WIDTH = 8.6
"""Of a picture, in inches."""


class Picture(NamedTuple):
    """One picture.

    Attributes:
        title: What it shows.
        alt: The same for those who do not see it, with where the numbers stand.
        svg: The picture.
    """

    title: str
    alt: str
    svg: bytes


def pictures(summary: Summary) -> dict[str, Picture | None]:
    """Draws every picture, by name.

    One is None where the summary has no numbers for it, and all are with more than `MAX_AGENTS`.
    """
    if len({group.total.agent for group in summary.groups}) > MAX_AGENTS:
        return {draw.__name__: None for draw in _PICTURES}
    with mpl.rc_context(_SETTINGS):
        return {draw.__name__: draw(summary) for draw in _PICTURES}


def success(summary: Summary) -> Picture | None:
    """Success with 95 % intervals: a line for each environment and level, a mark for each agent."""
    rows = [row for row in summary.rows if row.success.n]
    if not rows:
        return None
    agents = _agents(rows)
    lines = sorted({(row.env_id, row.level) for row in rows}, reverse=True)
    figure, axes = _figure(0.8 + len(lines) * (0.16 + 0.12 * len(agents)))
    for row in rows:
        proportion = row.success
        assert proportion.mean is not None
        assert proportion.low is not None
        assert proportion.high is not None
        shift = (agents.index(row.agent) - (len(agents) - 1) / 2) * 0.7 / len(agents)
        y = lines.index((row.env_id, row.level)) - shift
        colour = _colour(agents.index(row.agent))
        axes.plot([proportion.low, proportion.high], [y, y], color=colour, linewidth=1.6)
        axes.plot([proportion.mean], [y], "o", color=colour, markersize=4.5)
    axes.set_yticks(
        range(len(lines)), [f"{_name(short_env(env))}  {level}" for env, level in lines]
    )
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of valid episodes that met every validator")
    _legend(axes, [(agent, _colour(i)) for i, agent in enumerate(agents)])
    alt = "Success of each agent by environment and level, with 95 % intervals, as in the table."
    return Picture("Success with Wilson 95 % intervals", alt, _svg(figure, "success"))


def first_faults(summary: Summary) -> Picture | None:
    """Where the first faults of failures fall: a bar for each agent and environment."""
    rows = [group.total for group in reversed(summary.groups) if group.total.first_faults]
    if not rows:
        return None
    kinds = [*Capability, "unknown"]
    figure, axes = _figure(1.0 + 0.26 * len(rows))
    for y, row in enumerate(rows):
        left = 0.0
        for i, kind in enumerate(kinds):
            share = row.first_faults.get(kind, 0) / row.success.n
            axes.barh(y, share, left=left, color=_colour(i), height=0.7)
            left += share
    names = [f"{_name(row.agent)}  {_name(short_env(row.env_id))}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("share of valid episodes that failed, by the capability that broke first")
    found = [(i, kind) for i, kind in enumerate(kinds) if any(kind in r.first_faults for r in rows)]
    _legend(axes, [(kind, _colour(i)) for i, kind in found])
    alt = "Share of failures by the capability that broke first, for each agent and environment."
    return Picture("Where first faults fall", alt, _svg(figure, "faults"))


def steps(summary: Summary) -> Picture | None:
    """Steps against those of the gold solution; the line is the shortest way."""
    counted = Counter(
        (score.agent, score.metrics["gold_steps"], score.metrics["steps"], bool(score.success))
        for score in summary.episodes
        if score.valid and "gold_steps" in score.metrics
    )
    if not counted:
        return None
    agents = sorted({agent for agent, *_ in counted})
    figure, axes = _figure(3.8)
    longest = max(gold for _, gold, _, _ in counted)
    axes.plot([0, longest + 1], [0, longest + 1], color=INK, linewidth=0.8, alpha=0.5)
    for (agent, gold, taken, won), count in sorted(counted.items()):
        index = agents.index(agent)
        x = gold + (index - (len(agents) - 1) / 2) * 0.7 / len(agents)
        face = _colour(index) if won else "none"
        size = 8 + 6 * count**0.5
        axes.scatter([x], [taken], s=size, facecolor=face, edgecolor=_colour(index), linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("steps of the gold solution")
    axes.set_ylabel("steps taken")
    _legend(axes, [(agent, _colour(i)) for i, agent in enumerate(agents)])
    alt = "Steps taken against steps of the gold solution; filled marks are successes."
    return Picture("Steps against the shortest way: filled for success", alt, _svg(figure, "steps"))


def success_by_cost(summary: Summary) -> Picture | None:
    """Success against mean cost; None where no valid episode has a known price."""
    return _success_by(summary, "cost_usd", "mean cost of an episode, USD")


def success_by_steps(summary: Summary) -> Picture | None:
    """Success against mean steps."""
    return _success_by(summary, "steps", "mean steps of an episode")


def _success_by(summary: Summary, metric: str, label: str) -> Picture | None:
    """A mark for each agent and environment; both come from the episodes that have the metric."""
    costs: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for score in summary.episodes:
        if score.success is not None and metric in score.metrics:
            costs[score.agent, score.env_id].append((score.metrics[metric], score.success))
    if not costs:
        return None
    agents, envs = (sorted(set(names)) for names in zip(*costs, strict=True))
    figure, axes = _figure(4.0)
    for (agent, env_id), tries in sorted(costs.items()):
        estimate = proportion(sum(won for _, won in tries), len(tries))
        x = sum(cost for cost, _ in tries) / len(tries)
        colour, shape = _colour(agents.index(agent)), _SHAPES[envs.index(env_id) % len(_SHAPES)]
        axes.plot([x, x], [estimate.low, estimate.high], color=colour, linewidth=1, alpha=0.6)
        axes.plot([x], [estimate.mean], shape, color=colour, markersize=6)
    axes.set_xlim(left=0)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel(label)
    axes.set_ylabel("share that succeeded")
    names = [(agent, _colour(i)) for i, agent in enumerate(agents)]
    _legend(axes, names, [(short_env(e), _SHAPES[i % len(_SHAPES)]) for i, e in enumerate(envs)])
    alt = f"Success of each agent in each environment against its {label}, with 95 % intervals."
    return Picture(f"Success against {label}", alt, _svg(figure, metric))


_PICTURES = (success, first_faults, success_by_cost, success_by_steps, steps)
_SHAPES = "osD^vP*X"

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
}


def _figure(height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(True, color=INK, alpha=0.15, linewidth=0.5)
    return figure, axes


def _legend(
    axes: Any, colours: list[tuple[str, str]], shapes: Sequence[tuple[str, str]] = ()
) -> None:
    entries = [(name, colour, "o") for name, colour in colours]
    entries += [(name, INK, shape) for name, shape in shapes]
    marks = [
        Line2D([], [], marker=shape, linestyle="", color=colour, label=_name(name))
        for name, colour, shape in entries
    ]
    axes.figure.legend(
        handles=marks, loc="outside upper left", ncols=5, frameon=False, handletextpad=0.1
    )


def _name(text: str) -> str:
    """A name as it is drawn: of a long one, both ends."""
    shown = printable(text) or "(none)"
    return shown if len(shown) <= 40 else f"{shown[:24]}…{shown[-15:]}"


def _agents(rows: list[Row]) -> list[str]:
    return sorted({row.agent for row in rows})


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _svg(figure: Figure, salt: str) -> bytes:
    """Writes a figure: the same bytes for the same numbers, without a date."""
    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": salt}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue().decode().replace(INK, "currentColor")
    head, mark, rest = text.partition("<defs>")
    return f"{head}<style>{STYLE}</style>{mark}{rest}".encode()
