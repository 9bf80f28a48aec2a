"""Exports of `railgym log export` that come from the replay: ATIF, Inspect's logs, chat rows."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from env_server.cli.asked import asked_for, last_request
from env_server.cli.exits import Failure, failing_on
from env_server.cli.options import log_at
from env_server.cli.output import say, with_progress
from env_server.cli.pricing import prices_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from env_server.export.selection import Scored
    from env_server.registry import Registry
    from env_server.scoring.score import EpisodeScore


class Format(StrEnum):
    """What a log can be exported as."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    ATIF = "atif"
    INSPECT = "inspect"
    CHAT = "chat"


class Kept(StrEnum):
    """Which scored episodes are exported."""

    SUCCESSFUL = "successful"
    VALID = "valid"
    ALL = "all"


def export_scored(
    path: Path, output: Path | None, form: Format, keep: Kept | None, registry: Registry
) -> None:
    """Replays a log and writes its episodes.

    Args:
        path: The log, or the folder of a run: then only what was asked for last counts, at the
            prices of the run, as in `railgym score`.
        output: A file for chat rows, where None is stdout; a folder for the others.
        form: ATIF, INSPECT or CHAT.
        keep: None: the usual choice of the format.
        registry: What episodes are replayed with.

    Raises:
        Failure: There is no output where one is needed, it cannot be written, or Inspect is
            not installed.
        NotALog: There is no log.
    """
    from env_server.export.selection import scored
    from env_server.scoring.score import score_log

    keep = keep or (Kept.SUCCESSFUL if form is Format.CHAT else Kept.ALL)
    log, keys = log_at(path), last_request(path)
    scores: Iterable[EpisodeScore] = score_log(log, registry, prices=prices_of(path))
    if keys is not None:
        scores = asked_for(scores, keys)
    found = with_progress(scored(log, registry, keep.value, scores), "export")
    with failing_on(OSError):
        if form is Format.CHAT:
            _write_chat(found, output)
            return
        if output is None:
            raise Failure(f"expected -o FOLDER for {form}, got none")
        _write_folder(found, output, form)


def with_folder(path: Path) -> Path:
    """The path of a file, whose folder is there after this.

    Raises:
        OSError: It cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write_chat(found: Iterable[Scored], output: Path | None) -> None:
    from env_server.export.chat import write_rows

    if output is None:
        write_rows(found, sys.stdout)
        return
    with with_folder(output).open("w", encoding="ascii") as file:
        lines = write_rows(found, file)
    say(f"{lines} rows in {output}")


def _write_folder(found: Iterable[Scored], folder: Path, form: Format) -> None:
    if form is Format.ATIF:
        from env_server.export.atif import write_trajectories

        say(f"{write_trajectories(found, folder)} trajectories in {folder}")
        return
    from env_server.export.inspect_log import write_logs

    try:
        paths = write_logs(found, folder)
    except ModuleNotFoundError as e:
        raise Failure(f"{form} needs Inspect: pip install 'railgym[inspect]' ({e})") from None
    say(f"{len(paths)} logs in {folder}")
