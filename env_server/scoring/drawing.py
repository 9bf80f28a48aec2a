"""What pictures are made of: a figure with its legend, colours, names and the SVG that is written.

A figure is as wide as half a wide page, and a legend takes as many rows as it needs.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from env_server.errors import printable

COLOURS = ("#2a7fba", "#e08a1e", "#1f9e77", "#c0568f", "#8a6fd1", "#a8762f")
"""Told apart by colour-blind readers too, and clear on white and on black."""

INK = "#010203"
"""Stands for the reader's text colour until the SVG is written."""

STYLE = "svg{color:#1c1e21}@media(prefers-color-scheme:dark){svg{color:#dfe2e6}}"

SHAPES = "osD^vP*X"
"""Of marks, for what is no agent."""

WIDTH = 6.4
"""Of a picture, in inches: two stand side by side on a wide page, one on a narrow one."""

CHARACTERS = 84
"""Of a legend that fit beside each other."""

NAME = 28
"""Characters of a name at an axis."""


SETTINGS: dict[Any, Any] = {
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


class Mark(NamedTuple):
    """An entry of a legend."""

    name: str
    colour: str
    shape: str = "o"


class Palette:
    """The short name and the colour of each agent, the same in every picture."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Takes the short names."""
        self._shorts = names
        self._places = {agent: place for place, agent in enumerate(names)}

    def name(self, agent: str) -> str:
        """The short name."""
        return self._shorts[agent]

    def colour(self, agent: str) -> str:
        """The colour."""
        return colour_at(self._places[agent])

    def key(self, agents: Iterable[str]) -> list[Mark]:
        """What a legend says of them."""
        return [Mark(self.name(agent), self.colour(agent)) for agent in agents]


def new_figure(height: float, key: Sequence[Mark]) -> tuple[Figure, Any]:
    """A figure with its legend above, in as many rows as that takes.

    Args:
        height: In inches, without the legend.
        key: The legend.
    """
    labels = [fitted(mark.name, CHARACTERS) for mark in key]
    longest = max(map(len, labels))
    columns = min(len(key), max(1, CHARACTERS // (longest + 4)))
    rows = -(-len(key) // columns)
    figure = Figure(figsize=(WIDTH, height + 0.19 * rows), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(True, color=INK, alpha=0.15, linewidth=0.5)
    marks = [
        Line2D([], [], color=mark.colour, marker=mark.shape, linestyle="", label=label)
        for mark, label in zip(key, labels, strict=True)
    ]
    figure.legend(
        handles=marks, loc="outside upper left", ncols=columns, frameon=False, handletextpad=0.1
    )
    return figure, axes


def fitted(text: str, length: int = NAME) -> str:
    """A name as it is drawn: of a long one, both ends."""
    shown = printable(text) or "(none)"
    return shown if len(shown) <= length else f"{shown[: length - 13]}…{shown[-12:]}"


def colour_at(index: int) -> str:
    """A colour by its place; they come again where there are not enough."""
    return COLOURS[index % len(COLOURS)]


def to_svg(figure: Figure, salt: str) -> bytes:
    """Writes a figure: the same bytes for the same numbers, without a date."""
    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": salt}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue().decode().replace(INK, "currentColor")
    head, mark, rest = text.partition("<defs>")
    return f"{head}<style>{STYLE}</style>{mark}{rest}".encode()
