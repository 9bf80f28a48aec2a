"""Pictures of a summary, as self-contained SVG that is readable on light and dark ground.

Colours follow the reader's own setting. Nothing is drawn from more than the summary's numbers:
episodes that fall on one point are one mark, whose area grows with their number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from env_server.scoring.cells import short_env
from env_server.scoring.drawing import (
    INK,
    SETTINGS,
    SHAPES,
    Mark,
    Palette,
    colour_at,
    fitted,
    new_figure,
    to_svg,
)
from env_server.scoring.faults import Capability
from env_server.scoring.statistics import proportion
from env_server.scoring.summary import Row, Summary

MAX_AGENTS = 20
"""With more, names would leave no room for what is drawn; the table has them all."""


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


def pictures(summary: Summary, names: Mapping[str, str] | None = None) -> dict[str, Picture | None]:
    """Draws every picture, by name.

    Args:
        summary: What is drawn.
        names: Short names of agents; None: those of the summary.

    Returns:
        None in place of one that the summary has no numbers for, and of all with more than
        `MAX_AGENTS`.
    """
    if len({group.total.agent for group in summary.groups}) > MAX_AGENTS:
        return {draw.__name__: None for draw in _PICTURES}
    palette = Palette(names or summary.names)
    with mpl.rc_context(SETTINGS):
        return {draw.__name__: draw(summary, palette) for draw in _PICTURES}


def success(summary: Summary, palette: Palette) -> Picture | None:
    """Success with 95 % intervals: a line for each environment and level, a mark for each agent."""
    rows = [row for row in summary.rows if row.success.n]
    if not rows:
        return None
    agents = _agents(rows)
    lines = sorted({(row.env_id, row.level) for row in rows}, reverse=True)
    key = palette.key(agents)
    figure, axes = new_figure(0.8 + len(lines) * (0.16 + 0.12 * len(agents)), key)
    for row in rows:
        proportion = row.success
        assert proportion.mean is not None
        assert proportion.low is not None
        assert proportion.high is not None
        shift = (agents.index(row.agent) - (len(agents) - 1) / 2) * 0.7 / len(agents)
        y = lines.index((row.env_id, row.level)) - shift
        colour = palette.colour(row.agent)
        axes.plot([proportion.low, proportion.high], [y, y], color=colour, linewidth=1.6)
        axes.plot([proportion.mean], [y], "o", color=colour, markersize=4.5)
    axes.set_yticks(
        range(len(lines)), [f"{fitted(short_env(env))}  {level}" for env, level in lines]
    )
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of valid episodes that met every validator")
    alt = "Success of each agent by environment and level, with 95 % intervals, as in the table."
    return Picture("Success with Wilson 95 % intervals", alt, to_svg(figure, "success"))


def first_faults(summary: Summary, palette: Palette) -> Picture | None:
    """Where the first faults of failures fall: a bar for each agent and environment."""
    rows = [group.total for group in reversed(summary.groups) if group.total.first_faults]
    if not rows:
        return None
    kinds = [*Capability, "unknown"]
    found = [(i, kind) for i, kind in enumerate(kinds) if any(kind in r.first_faults for r in rows)]
    key = [Mark(kind, colour_at(i)) for i, kind in found]
    figure, axes = new_figure(0.8 + 0.26 * len(rows), key)
    for y, row in enumerate(rows):
        left = 0.0
        for i, kind in enumerate(kinds):
            share = row.first_faults.get(kind, 0) / row.success.n
            axes.barh(y, share, left=left, color=colour_at(i), height=0.7)
            left += share
    names = [f"{fitted(palette.name(r.agent))}  {fitted(short_env(r.env_id))}" for r in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("share of valid episodes that failed, by the capability that broke first")
    alt = "Share of failures by the capability that broke first, for each agent and environment."
    return Picture("Where first faults fall", alt, to_svg(figure, "faults"))


def steps(summary: Summary, palette: Palette) -> Picture | None:
    """Steps against those of the gold solution; the line is the shortest way."""
    counted = Counter(
        (score.agent, score.metrics["gold_steps"], score.metrics["steps"], bool(score.success))
        for score in summary.episodes
        if score.valid and "gold_steps" in score.metrics
    )
    if not counted:
        return None
    agents = sorted({agent for agent, *_ in counted})
    figure, axes = new_figure(3.6, palette.key(agents))
    longest = max(gold for _, gold, _, _ in counted)
    axes.plot([0, longest + 1], [0, longest + 1], color=INK, linewidth=0.8, alpha=0.5)
    for (agent, gold, taken, won), count in sorted(counted.items()):
        index = agents.index(agent)
        x = gold + (index - (len(agents) - 1) / 2) * 0.7 / len(agents)
        colour = palette.colour(agent)
        face = colour if won else "none"
        size = 8 + 6 * count**0.5
        axes.scatter([x], [taken], s=size, facecolor=face, edgecolor=colour, linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("steps of the gold solution")
    axes.set_ylabel("steps taken")
    alt = "Steps taken against steps of the gold solution; filled marks are successes."
    return Picture(
        "Steps against the shortest way: filled for success", alt, to_svg(figure, "steps")
    )


def success_by_cost(summary: Summary, palette: Palette) -> Picture | None:
    """Success against mean cost; None where no valid episode has a known price."""
    return _success_by(summary, palette, "cost_usd", "mean cost of an episode, USD")


def success_by_steps(summary: Summary, palette: Palette) -> Picture | None:
    """Success against mean steps."""
    return _success_by(summary, palette, "steps", "mean steps of an episode")


def _success_by(summary: Summary, palette: Palette, metric: str, label: str) -> Picture | None:
    """A mark for each agent and environment; both come from the episodes that have the metric."""
    tries: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for score in summary.episodes:
        if score.success is not None and metric in score.metrics:
            tries[score.agent, score.env_id].append((score.metrics[metric], score.success))
    if not tries:
        return None
    agents, envs = (sorted(set(names)) for names in zip(*tries, strict=True))
    shapes = {env_id: SHAPES[i % len(SHAPES)] for i, env_id in enumerate(envs)}
    key = palette.key(agents) + [Mark(short_env(e), INK, shape) for e, shape in shapes.items()]
    figure, axes = new_figure(3.6, key)
    means = {who: sum(cost for cost, _ in some) / len(some) for who, some in sorted(tries.items())}
    estimates = {who: proportion(sum(w for _, w in some), len(some)) for who, some in tries.items()}
    spots = {who: (x, estimates[who].mean or 0.0) for who, x in means.items()}
    for (agent, env_id), shift in _apart(spots).items():
        x, estimate = means[agent, env_id], estimates[agent, env_id]
        moved = axes.transData + ScaledTranslation(shift / 72, 0, figure.dpi_scale_trans)
        look = {"color": palette.colour(agent), "transform": moved}
        axes.plot([x, x], [estimate.low, estimate.high], linewidth=1, alpha=0.6, **look)
        axes.plot([x], [estimate.mean], shapes[env_id], markersize=6, **look)
    axes.set_xlim(0, max(means.values()) * 1.08 or 1)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel(label)
    axes.set_ylabel("share that succeeded")
    alt = f"Success of each agent in each environment against its {label}, with 95 % intervals."
    return Picture(f"Success against {label}", alt, to_svg(figure, metric))


def _apart(spots: Mapping[_Key, tuple[float, float]]) -> dict[_Key, float]:
    """How far to move each mark to the right, in points, so that none covers another."""
    widest = max(x for x, _ in spots.values()) or 1
    alike: dict[tuple[float, float], list[_Key]] = defaultdict(list)
    for who, (x, y) in spots.items():
        alike[round(x / widest * 40), round(y * 30)].append(who)
    return {
        who: 8.0 * (place - (len(some) - 1) / 2)
        for some in alike.values()
        for place, who in enumerate(some)
    }


_PICTURES = (success, first_faults, success_by_cost, success_by_steps, steps)
_Key = tuple[str, str]


def _agents(rows: list[Row]) -> list[str]:
    return sorted({row.agent for row in rows})
