"""What the contest is held against: ratios of one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from contest import Result, Sample
from contestants import (
    DM_ENV_RPC,
    DM_ENV_RPC_OWN,
    OPENENV,
    OPENENV_OWN,
    ROLLOUT,
    STREAM_ECHO,
    UNARY,
    UNARY_ECHO,
)


class Row(NamedTuple):
    """One figure, and the target that it is held against.

    Attributes:
        name: What was measured.
        value: The figure; None: it could not be measured.
        unit: Of the figure.
        target: In words; empty: none.
        met: Whether it is met; None: there is none, or no figure.
    """

    name: str
    value: float | None
    unit: str
    target: str = ""
    met: bool | None = None


class _Ratio(NamedTuple):
    """A ratio of two contestants with so many sessions, and the bound that it must keep."""

    one: str
    other: str
    sessions: int
    least: float


RATES = [
    _Ratio(ROLLOUT, STREAM_ECHO, 1, 0.7),
    _Ratio(ROLLOUT, OPENENV, 1, 1.0),
    _Ratio(ROLLOUT, OPENENV_OWN, 1, 1.0),
    _Ratio(ROLLOUT, DM_ENV_RPC, 1, 2.0),
    _Ratio(ROLLOUT, DM_ENV_RPC_OWN, 1, 2.0),
    *(
        _Ratio(ROLLOUT, peer, sessions, 1.0)
        for sessions in (64, 1_000)
        for peer in (OPENENV, OPENENV_OWN, DM_ENV_RPC, DM_ENV_RPC_OWN)
    ),
    *(_Ratio(UNARY, UNARY_ECHO, sessions, 0.75) for sessions in (1, 64, 1_000)),
]

MEMORY_SHARE = 1 / 3
"""Of a session of OpenEnv."""


def held(results: Sequence[Result]) -> list[Row]:
    """Holds the targets against results; those that were not played for are left out."""
    found = {(result.name, result.sessions): result for result in results}
    counts = {result.sessions for result in results}
    names = {result.name for result in results}
    rows = []
    for ratio in RATES:
        if ratio.sessions in counts and {ratio.one, ratio.other} <= names:
            one, other = (found[name, ratio.sessions] for name in (ratio.one, ratio.other))
            rows.append(_rate_row(ratio, one, other))
    for sessions in (64, 1_000):
        for peer in (OPENENV, OPENENV_OWN):
            if sessions in counts and {ROLLOUT, peer} <= names:
                rows.append(_memory_row(found[ROLLOUT, sessions], found[peer, sessions]))
    return rows


def ratio_of(one: Result, other: Result, figure: Callable[[Sample], float]) -> float | None:
    """The median, over the rounds, of one's figure by the other's; None: one did not play."""
    pairs = list(zip(one.samples, other.samples, strict=False))  # one that broke has fewer
    return statistics.median(figure(a) / figure(b) for a, b in pairs) if pairs else None


def _rate_row(ratio: _Ratio, one: Result, other: Result) -> Row:
    value = ratio_of(one, other, lambda sample: sample.rate)
    name = f"{ratio.one} / {ratio.other}, {_counted(ratio.sessions)}"
    met = None if value is None else value >= ratio.least
    return Row(name, value, "x steps/s", f"≥ {ratio.least:g}", met)


def _memory_row(one: Result, other: Result) -> Row:
    name = f"memory: {one.name} / {other.name}, {_counted(one.sessions)}"
    target = f"≤ {MEMORY_SHARE:.2f}"
    if not one.memory_kb or not other.memory_kb:
        return Row(name, None, "x KB", target)
    value = one.memory_kb / other.memory_kb
    return Row(name, value, "x KB", target, value <= MEMORY_SHARE)


def _counted(sessions: int) -> str:
    return "1 session" if sessions == 1 else f"{sessions:,} sessions"
