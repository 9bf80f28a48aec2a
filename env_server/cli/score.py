"""`railgym score` and `railgym report`: a log is run again, and what comes of it is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from env_server.cli.exits import Exit, Failure, failing_on
from env_server.cli.log import torn
from env_server.cli.options import (
    DEFAULT_LOG_DIR,
    Json,
    LogPath,
    MoreEnvs,
    MoreTasks,
    log_at,
    open_registry,
)
from env_server.cli.output import print_json, say, with_progress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from env_server.registry import Registry
    from env_server.scoring.score import Drift, EpisodeScore
    from railgym import records
    from railgym.client import Client

SCORES = "scores.json"
REPORT = "report.html"
_TABLE_WIDTH = 140


def score(
    path: LogPath = DEFAULT_LOG_DIR,
    allow_drift: Annotated[
        bool,
        typer.Option(
            "--allow-drift", help="Score an episode that diverges by what is recomputed; label it."
        ),
    ] = False,
    env: MoreEnvs = None,
    tasks: MoreTasks = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", show_default=False, help="Write scores.json here too."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run every episode of a log again, compare it with its record, and score it.

    Needs no server, no key and no network. An episode of an environment or a task of yours needs
    it again: --env and --tasks. Exits with 1 where an episode is not VERIFIED (it differs
    from its record, or cannot be run; --allow-drift lets those pass that differ), and where the
    log is cut off.

    `railgym score runs/first`
    """
    from env_server.scoring.summary import summarise, write_scores
    from env_server.scoring.table import tables

    registry = open_registry(env, tasks)
    log = log_at(path)
    summary = summarise(scores_of(log, registry, "label" if allow_drift else "refuse"))
    if output is not None:
        with failing_on(OSError):
            write_scores(summary, output)
    if as_json:
        print_json(summary.to_json())
    else:
        print_table(tables(summary))
        for line in problems(summary.episodes):
            typer.echo(line)
    cut = torn(log)
    for item in cut:
        say(f"{item.place}: {item.message}")
    raise typer.Exit(Exit.BAD if cut else verdict(summary.episodes))


def report(
    path: Annotated[Path, typer.Argument(help="The folder of a run, or a scores.json.")],
) -> None:
    """Write report.html anew, beside the scores.json that it is made from.

    `railgym report runs/first`
    """
    from env_server.scoring.report import write_report
    from env_server.scoring.summary import summarise

    source = path / SCORES if path.is_dir() else path
    summary = summarise(_read_scores(source))
    target = source.with_name(REPORT)
    with failing_on(OSError):
        write_report(summary, target, title=f"Run {source.absolute().parent.name}")
    typer.echo(target)


def scores_of(
    log: Path, registry: Registry, drift: Drift = "refuse", total: int | None = None
) -> list[EpisodeScore]:
    """Replays a log under a progress bar.

    Args:
        log: The log.
        registry: What it is replayed with.
        drift: See `env_server.scoring.score`.
        total: Episodes to expect, if that is known.

    Raises:
        Failure: There is no log.
    """
    from env_server.log import NotALog
    from env_server.scoring.score import score_log

    with failing_on(NotALog):
        return list(with_progress(score_log(log, registry, drift), "replay", total))


def scores_of_server(client: Client, run: str) -> list[EpisodeScore]:
    """Lets a server replay the episodes of a run from its own log.

    Args:
        client: Of the server.
        run: Their label "run".
    """
    ids = [e.episode_id for e in client.episodes() if e.labels.get("run") == run]
    scores = client.score(ids) if ids else iter(())
    return [_from_server(score) for score in with_progress(scores, "replay", len(ids))]


def _from_server(score: records.EpisodeScore) -> EpisodeScore:
    from env_server.scoring.replay import Outcome
    from env_server.scoring.score import VALID_ENDS, EpisodeScore

    outcome = Outcome(score.outcome)
    reason = None
    if outcome is not Outcome.VERIFIED:
        reason = outcome.lower()
    elif not score.valid:
        told = score.end_reason is not None and score.end_reason not in VALID_ENDS
        reason = score.end_reason if told else "unfinished"
    return EpisodeScore(
        **{
            **score._asdict(),
            "outcome": outcome,
            "first_fault": score.first_fault or None,
            "invalid_reason": reason,
            "steps": int(score.metrics.get("steps", 0)),
        }
    )


def print_table(table: RenderableType) -> None:
    """Prints a table of scores; where stdout is no terminal, as wide as it may be."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH).print(table)


def problems(scores: Iterable[EpisodeScore]) -> list[str]:
    """A line for each episode that is not verified: what became of it, and where."""
    from env_server.scoring.replay import Outcome
    from env_server.scoring.table import printable

    return [
        printable(
            f"{score.outcome} {score.episode_id or '(no episode)'} "
            f"({score.task_id or score.env_id or 'unknown'}): step {score.step}: {score.detail}"
        )
        for score in scores
        if score.outcome is not Outcome.VERIFIED
    ]


def verdict(scores: Iterable[EpisodeScore]) -> Exit:
    """BAD where an episode is not verified and did not drift with leave."""
    from env_server.scoring.replay import Outcome

    bad = any(s.outcome is not Outcome.VERIFIED and not s.drifted for s in scores)
    return Exit.BAD if bad else Exit.OK


def _read_scores(path: Path) -> list[EpisodeScore]:
    from env_server.scoring.replay import Outcome
    from env_server.scoring.score import EpisodeScore

    def read(row: dict[str, Any]) -> EpisodeScore:
        known = {key: row[key] for key in EpisodeScore._fields if key in row}
        return EpisodeScore(**{**known, "outcome": Outcome(row["outcome"])})

    try:
        return [read(row) for row in json.loads(path.read_text(encoding="utf-8"))["episodes"]]
    except OSError as e:
        raise Failure(f"expected a {SCORES} at {path}: {e.strerror}") from e
    except (ValueError, KeyError, TypeError) as e:
        wrong = f"{type(e).__name__}: {e}"
        raise Failure(f"expected a {SCORES} as Railgym writes it at {path}, got {wrong}") from e
