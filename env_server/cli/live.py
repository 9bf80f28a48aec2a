"""Shows a run while it runs, on stderr: live on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from env_server.cli.output import say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from env_server.cli.tally import Count, Tally

LINE_SECONDS = 15.0
"""Between two plain lines."""

FRAMES_PER_SECOND = 4


class Throttled(Protocol):
    """How many calls of a model go out at once, as it is just now."""

    @property
    def limit(self) -> int:
        """Most calls at once."""

    @property
    def waiting(self) -> int:
        """Calls that wait for their turn."""


class View(Protocol):
    """Shows a tally."""

    def update(self) -> None:
        """Something has changed."""


class Lines:
    """A plain line now and then."""

    def __init__(self, tally: Tally, line_seconds: float = LINE_SECONDS) -> None:
        """Begins to count the time.

        Args:
            tally: What is shown.
            line_seconds: Between two lines.
        """
        self._tally = tally
        self._line_seconds = line_seconds
        self._latest = time.monotonic()

    def update(self) -> None:
        """Prints a line if it is time."""
        if time.monotonic() - self._latest >= self._line_seconds:
            self._latest = time.monotonic()
            say(summary_line(self._tally))


class Drawn:
    """The live view of a terminal, which draws itself anew."""

    def __init__(self, tally: Tally, throttles: Mapping[str, Throttled], title: str) -> None:
        """Takes what is shown.

        Args:
            tally: How far the run has come.
            throttles: By model.
            title: Above it.
        """
        self._tally = tally
        self._throttles = throttles
        self._title = title

    def update(self) -> None:
        """Does nothing: the next frame will show it."""

    def __rich__(self) -> RenderableType:
        """Draws a frame."""
        from rich.console import Group
        from rich.text import Text

        tally = self._tally
        head = f"{self._title}: {_time(tally.elapsed())}{_left(tally)}"
        parts: list[RenderableType] = [Text(head, style="bold"), _environments(tally)]
        parts += [Text(line) for line in throttle_lines(self._throttles)]
        used = usage(tally)
        return Group(*parts, Text(used)) if used else Group(*parts)


@contextmanager
def shown(tally: Tally, throttles: Mapping[str, Throttled], title: str) -> Iterator[View]:
    """Shows a tally while the block runs.

    Args:
        tally: How far the run has come.
        throttles: By model.
        title: Names the run.
    """
    if not sys.stderr.isatty():
        yield Lines(tally)
        return
    from rich.console import Console
    from rich.live import Live

    drawn = Drawn(tally, throttles, title)
    with Live(drawn, console=Console(stderr=True), refresh_per_second=FRAMES_PER_SECOND):
        yield drawn


def summary_line(tally: Tally) -> str:
    """Says in a line how far a run has come."""
    total = tally.total()
    parts = [f"played {total.reused + total.played} of {total.trials}{_reused(total)}"]
    if total.judged:
        parts.append(f"success {success(total)}")
    parts.append(f"faults {total.faults}")
    if total.failed:
        parts.append(f"could not be played {total.failed}")
    return ", ".join(filter(None, [*parts, usage(tally)])) + _left(tally)


def success(count: Count) -> str:
    """Says how many trials succeeded, with the Wilson 95 % interval."""
    from env_server.scoring.statistics import proportion

    found = proportion(count.won, count.judged)
    if found.mean is None:
        return ""
    return f"{found.held}/{found.n} = {found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"


def usage(tally: Tally) -> str:
    """Says what models have used; empty where none was called."""
    used = tally.spending.total()
    if not (used.calls or used.usd):
        return ""
    missing = f" and {used.unpriced:,} calls of unknown price" if used.unpriced else ""
    waited = f", waited {used.queued:.0f} s" if used.queued >= 1 else ""
    return f"{used.calls:,} calls, {used.tokens:,} tokens, ${used.usd:.4f}{missing}{waited}"


def throttle_lines(throttles: Mapping[str, Throttled]) -> list[str]:
    """A line for each model: how many calls go out at once, and how many wait."""
    return [
        f"{model}: at most {throttle.limit} calls at once, {throttle.waiting} waiting"
        for model, throttle in throttles.items()
    ]


def _environments(tally: Tally) -> RenderableType:
    from rich.table import Table

    columns: list[Any] = ["environment", "played", "success", "faults", "failed"]
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for env_id, count in tally.by_env().items():
        done = f"{count.reused + count.played}/{count.trials}{_reused(count)}"
        table.add_row(env_id, done, success(count), str(count.faults), str(count.failed))
    return table


def _reused(count: Count) -> str:
    return f" ({count.reused} from before)" if count.reused else ""


def _left(tally: Tally) -> str:
    seconds = tally.seconds_left()
    return "" if seconds is None else f", about {_time(seconds)} left"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
