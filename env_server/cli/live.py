"""Shows a run while it runs, on stderr: live on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from env_server.cli.output import say
from env_server.cli.words import counted
from env_server.errors import printable

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

    @property
    def trouble(self) -> str:
        """What a call has met that is to be sent again; empty: none is."""


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

    def __rich__(self) -> RenderableType:
        """Draws a frame."""
        from rich.console import Group
        from rich.text import Text

        tally = self._tally
        head = f"{self._title}: {_time(tally.elapsed())}{_left(tally)}"
        parts: list[RenderableType] = [Text(head, style="bold"), _environments(tally)]
        lines = throttle_lines(self._throttles) + trouble_lines(self._throttles)
        parts += [Text(line) for line in lines]
        used = usage(tally)
        return Group(*parts, Text(used)) if used else Group(*parts)


@contextmanager
def shown(tally: Tally, throttles: Mapping[str, Throttled], title: str) -> Iterator[None]:
    """Shows a tally while the block runs.

    Args:
        tally: How far the run has come.
        throttles: By model.
        title: Names the run.
    """
    if not sys.stderr.isatty():
        with plain_lines(tally, throttles):
            yield
        return
    from rich.console import Console
    from rich.live import Live

    drawn = Drawn(tally, throttles, title)
    with Live(drawn, console=Console(stderr=True), refresh_per_second=FRAMES_PER_SECOND):
        yield


@contextmanager
def plain_lines(
    tally: Tally, throttles: Mapping[str, Throttled], line_seconds: float = LINE_SECONDS
) -> Iterator[None]:
    """Prints how far a run has come while the block runs, also while no trial ends.

    Args:
        tally: How far the run has come.
        throttles: By model.
        line_seconds: Between two times.
    """
    over = threading.Event()

    def tell() -> None:
        while not over.wait(line_seconds):
            for line in [summary_line(tally), *trouble_lines(throttles)]:
                say(line)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
    if not used.calls:
        return ""
    known = "" if used.cost is None else f"${used.cost:.4f}"
    unknown = f"{counted(used.unpriced, 'call')} of unknown cost" if used.unpriced else ""
    waited = f"{used.queued:.0f} s of waiting for throttle and provider" if used.queued >= 1 else ""
    money = " and ".join(filter(None, (known, unknown)))
    calls, tokens = counted(used.calls, "call"), counted(used.tokens, "token")
    return ", ".join(filter(None, (calls, tokens, money, waited)))


def throttle_lines(throttles: Mapping[str, Throttled]) -> list[str]:
    """A line for each model: how many calls go out at once, and how many wait."""
    return [
        f"{model}: at most {counted(throttle.limit, 'call')} at once, {throttle.waiting} waiting"
        for model, throttle in throttles.items()
    ]


def trouble_lines(throttles: Mapping[str, Throttled]) -> list[str]:
    """A line for each model that is to be asked again: what was in the way."""
    troubles = ((model, throttle.trouble) for model, throttle in throttles.items())
    return [printable(f"{model} waits: {trouble}") for model, trouble in troubles if trouble]


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
