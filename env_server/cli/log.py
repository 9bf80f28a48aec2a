"""`railgym log`: lists, shows, checks and exports the episodes of a log.

Nothing is replayed here; exports that need it are in `env_server.cli.exports`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from env_server.cli.exits import Exit, Failure, failing_on
from env_server.cli.exports import Format, Kept, export_scored, with_folder
from env_server.cli.options import (
    DEFAULT_LOG_DIR,
    Json,
    LogPath,
    MoreEnvs,
    MoreTasks,
    log_at,
    open_registry,
)
from env_server.cli.output import print_json, print_rows, say, with_progress
from env_server.errors import printable

if TYPE_CHECKING:
    from env_server.log import Damage, LoggedEpisode

app = typer.Typer(no_args_is_help=True, help="List, show, check and export a log.")


class Wrong(NamedTuple):
    """Something wrong with a log.

    Attributes:
        place: FILE:OFFSET.
        episode_id: Empty where no episode is concerned.
        step: 0 is the start of the episode.
        message: What is wrong.
    """

    place: str
    episode_id: str
    step: int
    message: str


@app.command("list")
def list_episodes(path: LogPath = DEFAULT_LOG_DIR, as_json: Json = False) -> None:
    """List the episodes of a log, oldest first. --json gives one line for each.

    `railgym log list runs/first`
    """
    found = [episode for episode in _episodes(path) if episode.episode_id]
    found.sort(key=lambda episode: (episode.start_time, episode.episode_id))
    rows = map(_row, found)
    if as_json:
        for row in rows:
            print_json(row)
    else:
        columns = ["episode", "task", "agent", "started", "steps", "end", "problem"]
        print_rows(columns, ([_cell(row[c]) for c in columns] for row in map(_brief, rows)))


@app.command()
def show(
    path: LogPath = DEFAULT_LOG_DIR,
    episode: Annotated[
        str,
        typer.Option(metavar="EPISODE_ID", show_default=False, help="This one only. Default: all."),
    ] = "",
) -> None:
    """Print the records of a log as JSON lines, in the order of the log.

    What cannot be read is named on stderr, and the rest is printed; then the exit code is 1.

    `railgym log show runs/first | jq .step_taken.action`
    """
    import sys

    from env_server.log.export import write_json_lines

    with _reading():
        lines, damage = write_json_lines(log_at(path), sys.stdout, episode)
    if episode and not lines:
        raise Failure(f"the log holds no episode {episode[:80]!r}; `railgym log list` names all")
    _report(damage)


@app.command()
def verify(path: LogPath = DEFAULT_LOG_DIR, as_json: Json = False) -> None:
    """Check that the records are whole, in order and linked; exits with 1 where one is not.

    Whether they tell the truth is another question: `railgym score` runs the episodes again.

    `railgym log verify runs/first`
    """
    count, wrong = 0, torn(log_at(path))
    for episode in with_progress(_episodes(path), "verify"):
        count += bool(episode.episode_id)
        if episode.problem:
            step, message, place = episode.problem
            wrong.append(Wrong(place, episode.episode_id, step, message))
    if as_json:
        print_json({"episodes": count, "problems": [item._asdict() for item in wrong]})
    else:
        for place, episode_id, step, message in wrong:
            concerned = f"episode {episode_id}, step {step}: " if episode_id else ""
            typer.echo(printable(f"{place}: {concerned}{message}"))
        typer.echo(f"{count} episodes, {len(wrong)} problems")
    raise typer.Exit(Exit.BAD if wrong else Exit.OK)


@app.command()
def export(
    path: LogPath = DEFAULT_LOG_DIR,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE|FOLDER",
            show_default=False,
            help="Where to: a file, or for atif and inspect a folder. Lines need none.",
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="The records as they are (jsonl) or a table of steps (parquet); or episodes, "
            "replayed and scored: trajectories of Harbor (atif), logs of Inspect (inspect), rows "
            "for fine-tuning (chat).",
        ),
    ] = Format.JSONL,
    keep: Annotated[
        Kept | None,
        typer.Option(
            show_default=False,
            help="Which of the scored episodes. Default: all; for chat those that succeeded.",
        ),
    ] = None,
    env: MoreEnvs = None,
    tasks: MoreTasks = None,
) -> None:
    """Write a log in another format.

    The records and the table of steps are of everything that was ever played. The other formats are
    of what counts, as in `railgym score`: of a run's folder, only what was asked for last. For them
    episodes of an environment or a task of yours need it again: --env and --tasks.

    `railgym log export runs/first --format chat -o rows.jsonl`
    """
    if form is Format.JSONL:
        _export_json_lines(log_at(path), output)
    elif form is Format.PARQUET:
        _export_parquet(log_at(path), output)
    else:
        with _reading():
            export_scored(path, output, form, keep, open_registry(env, tasks))


def torn(path: Path) -> list[Wrong]:
    """What is cut off: the ends of a log within a record, where no writer is still at it."""
    from env_server.log import is_live
    from env_server.log.frames import torn_tail
    from env_server.log.segments import segments

    wrong = []
    for segment in segments(path) if path.is_dir() else [path]:
        tail = torn_tail(segment) if segment.is_file() and not is_live(segment) else None
        if tail is not None:
            message = f"expected a whole record, got its first {tail.length} bytes and the end"
            wrong.append(Wrong(f"{segment}:{tail.offset}", "", 0, message))
    return wrong


def _export_parquet(path: Path, output: Path | None) -> None:
    from env_server.log.export import write_parquet

    if output is None:
        raise Failure("expected -o FILE for Parquet, got none")
    with _reading(), failing_on(OSError):
        rows = write_parquet(path, with_folder(output))
    say(f"{rows} steps in {output}")


def _export_json_lines(path: Path, output: Path | None) -> None:
    import sys

    from env_server.log.export import write_json_lines

    with _reading(), failing_on(OSError):
        if output is None:
            lines, damage = write_json_lines(path, sys.stdout)
        else:
            with with_folder(output).open("w", encoding="ascii") as file:
                lines, damage = write_json_lines(path, file)
            say(f"{lines} records in {output}")
    _report(damage)


def _episodes(path: Path) -> Iterator[LoggedEpisode]:
    from env_server.log import episodes

    with _reading():
        yield from episodes(log_at(path))


@contextmanager
def _reading() -> Iterator[None]:
    from env_server.log import NotALog

    with failing_on(NotALog):
        yield


def _report(damage: list[Damage]) -> None:
    """Names what could not be read, and ends with exit code 1 where there is any."""
    for item in damage:
        say(f"{item.place}: {item.length} bytes left out: {item.reason}")
    raise typer.Exit(Exit.BAD if damage else Exit.OK)


def _row(episode: LoggedEpisode) -> dict[str, Any]:
    from railgym.codec import end_reason_from_proto

    started = episode.started
    return {
        "episode_id": episode.episode_id,
        "env_id": started.env_id if started else None,
        "task_id": started.task_id or None if started else None,
        "labels": dict(started.labels) if started else {},
        "start_time": _time(episode.start_time),
        "steps": len(episode.steps),
        "end_reason": end_reason_from_proto(episode.ended.reason) if episode.ended else None,
        "problem": episode.problem._asdict() if episode.problem else None,
    }


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    problem = row["problem"]
    return {
        "episode": row["episode_id"],
        "task": row["task_id"] or row["env_id"],
        "agent": row["labels"].get("agent"),
        "started": row["start_time"],
        "steps": row["steps"],
        "end": row["end_reason"],
        "problem": problem and f"step {problem['step']}: {problem['reason']} ({problem['place']})",
    }


def _cell(value: object) -> str:
    return "" if value is None else printable(str(value))


def _time(nanos: int) -> str:
    return datetime.fromtimestamp(nanos / 1e9, UTC).isoformat("T", "seconds")
