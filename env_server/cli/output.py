"""How commands show results, on stdout, and progress, on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")

_WIDE = 100_000
"""Columns where stdout is no terminal: nothing is wrapped or cut."""


def print_json(value: Any) -> None:
    """Prints one JSON value on a line of its own."""
    typer.echo(json.dumps(value, sort_keys=True, allow_nan=False))


def say(message: str) -> None:
    """Prints a message for the person at the terminal, on stderr."""
    typer.echo(message, err=True)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table: fitted to a terminal, and whole where stdout is none."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def progress_bar() -> Progress:
    """Makes a progress bar on stderr; it shows nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )


def with_progress(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Goes through items under a progress bar."""
    with progress_bar() as bar:
        task = bar.add_task(what, total=total, note="")
        for item in items:
            yield item
            bar.advance(task)
