"""`railgym score` and `railgym report`: a log is run again, and what comes of it is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from env_server.cli.asked import asked_for, last_request
from env_server.cli.exits import Exit, Failure, failing_on
from env_server.cli.judging import VERDICTS, judged, open_judge, words
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
from env_server.cli.output import print_json, print_rows, say, with_progress
from env_server.cli.pricing import open_prices, price_remarks, prices_of
from env_server.errors import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from env_server.registry import Registry
    from env_server.scoring.prices import Prices
    from env_server.scoring.score import Drift, EpisodeScore
    from env_server.scoring.summary import Summary
    from railgym import scores as remote
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
    prices: Annotated[
        list[Path] | None,
        typer.Option(
            "--prices",
            metavar="FILE",
            show_default=False,
            help="Ask this price table (TOML, see env_server/scoring/prices.toml) before the one "
            "that comes with Railgym. Repeatable; the last one is asked first. Default: those that "
            "the run was given.",
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            metavar="PROVIDER:MODEL",
            show_default=False,
            help="Ask this model too whether answers in free text say what the reference says. It "
            "changes no score. Its verdicts stand in verdicts.jsonl beside the log, and are not "
            "asked for again.",
        ),
    ] = None,
    votes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Times a judge is asked, an odd number.")
    ] = 3,
    table: Annotated[
        bool,
        typer.Option("--table", help="Show a row for each episode; with --json, a line for each."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", show_default=False, help="Write scores.json here too."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run every episode of a log again, compare it with its record, and score it.

    Of a run's folder, only what was asked for last counts, whatever else was played in it before.
    Needs no server, and but for --judge no key and no network. An episode of an environment or a
    task of yours needs it again: --env and --tasks. Exits with 1 where an episode is not VERIFIED
    (it differs from its record, or cannot be run; --allow-drift lets those pass that differ), and
    where the log is cut off.

    Costs follow from claimed tokens and a price table, so that --prices gives an old run other
    costs. Of a run whose log is on a server of yours, its scores.json is priced anew. Nothing is
    written but what --output names: for a report with other costs, write its scores.json anew.

    `railgym score runs/first`

    `railgym score runs/first --prices FILE -o runs/first/scores.json; railgym report runs/first`
    """
    from env_server.scoring.summary import summarise, write_scores

    costs = open_prices(prices) if prices else prices_of(path)
    asked = None if judge is None else open_judge(judge, votes)
    log, keys = log_at(path), last_request(path)
    registry = open_registry(env, tasks)
    if prices and asked is None and _is_kept_elsewhere(path):
        scores = [score.priced(costs) for score in read_scores(path / SCORES)]
    else:
        scores = scores_of(log, registry, "label" if allow_drift else "refuse", costs)
    if keys is not None:
        scores = asked_for(scores, keys)
    if asked is not None:
        scores = judged(scores, log, registry, asked, log.with_name(VERDICTS))
    summary = summarise(scores)
    if output is not None:
        with failing_on(OSError):
            write_scores(summary, output)
    _show(summary, log, table=table, as_json=as_json)
    for line in price_remarks(summary.episodes, costs):
        say(line)
    if asked is not None:
        say(words(summary.episodes))
    cut = torn(log)
    for item in cut:
        say(f"{item.place}: {item.message}")
    raise typer.Exit(Exit.BAD if cut else verdict(summary.episodes))


def report(
    path: Annotated[Path, typer.Argument(help="The folder of a run, or a scores.json.")],
    env: MoreEnvs = None,
    tasks: MoreTasks = None,
) -> None:
    """Write report.html anew, beside the scores.json that it is made from.

    Where the log stands beside it too, every episode can be opened in the report. State changes of
    an environment or a task of yours need it again: --env and --tasks. Costs are those of the
    scores.json: `railgym score runs/first --prices FILE -o runs/first/scores.json` changes them.

    `railgym report runs/first`
    """
    from env_server.log import NotALog
    from env_server.scoring.report import write_report
    from env_server.scoring.summary import summarise
    from env_server.scoring.trace import Trace, traces

    source = path / SCORES if path.is_dir() else path
    if not source.exists() and log_at(path).is_dir():
        raise Failure(
            f"expected a {SCORES} at {source}, got none, for the run did not come to its end: "
            f"railgym score {path} -o {source} makes one, and so does the same run again"
        )
    summary = summarise(read_scores(source))
    target, log = source.with_name(REPORT), source.with_name("log")
    told: Iterable[Trace] = ()
    if log.is_dir():
        told = with_progress(traces(log, open_registry(env, tasks)), "report")
    with failing_on(OSError, NotALog):
        title = f"Run {source.absolute().parent.name}"
        write_report(summary, target, title, told, prices_of(source.parent))
    typer.echo(target)


def scores_of(
    log: Path,
    registry: Registry,
    drift: Drift = "refuse",
    prices: Prices | None = None,
    total: int | None = None,
) -> list[EpisodeScore]:
    """Replays a log under a progress bar.

    Args:
        log: The log.
        registry: What it is replayed with.
        drift: See `env_server.scoring.score`.
        prices: See `env_server.scoring.score`.
        total: Episodes to expect, if that is known.

    Raises:
        Failure: There is no log.
    """
    from env_server.log import NotALog
    from env_server.scoring.score import score_log

    with failing_on(NotALog):
        return list(with_progress(score_log(log, registry, drift, prices), "replay", total))


def scores_of_server(client: Client, run: str, prices: Prices | None = None) -> list[EpisodeScore]:
    """Lets a server replay the episodes of a run from its own log.

    Args:
        client: Of the server.
        run: Their label "run".
        prices: What models cost; None: what the server says.
    """
    ids = [e.episode_id for e in client.episodes() if e.labels.get("run") == run]
    scores = client.score(ids) if ids else iter(())
    found = [_from_server(score) for score in with_progress(scores, "replay", len(ids))]
    return found if prices is None else [score.priced(prices) for score in found]


def _from_server(score: remote.EpisodeScore) -> EpisodeScore:
    from env_server.scoring.replay import Outcome
    from env_server.scoring.score import EpisodeScore

    said = {
        **score._asdict(),
        "outcome": Outcome(score.outcome),
        "invalid_reason": score.invalid_reason or None,
        "first_fault": score.first_fault or None,
        "fault": score.fault or None,
        "verdict": score.verdict or None,
    }
    return EpisodeScore(**said)


def _is_kept_elsewhere(path: Path) -> bool:
    """Whether a folder is that of a run whose log is on a server."""
    return (path / SCORES).is_file() and not (path / "log").is_dir()


def _show(summary: Summary, log: Path, *, table: bool, as_json: bool) -> None:
    from env_server.scoring.episode_table import COLUMNS, episode_row
    from env_server.scoring.table import tables

    rows = [episode_row(score, str(log)) for score in summary.episodes] if table else []
    if as_json and table:
        for row in rows:
            print_json(row)
    elif as_json:
        print_json(summary.to_json())
    else:
        if table:
            print_rows(COLUMNS, ([printable(_cell(row[c])) for c in COLUMNS] for row in rows))
        else:
            print_table(tables(summary))
        for line in problems(summary.episodes):
            typer.echo(line)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return ", ".join(value) if isinstance(value, list) else str(value)


def print_table(table: RenderableType) -> None:
    """Prints a table of scores; where stdout is no terminal, as wide as it may be."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH).print(table)


def problems(scores: Iterable[EpisodeScore]) -> list[str]:
    """A line for each episode that is not verified: what became of it, and where."""
    from env_server.scoring.replay import Outcome

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


def read_scores(path: Path) -> list[EpisodeScore]:
    """Reads a scores.json.

    Raises:
        Failure: It is none.
    """
    from env_server.scoring import saved

    with failing_on(saved.NoScores):
        return saved.read_scores(path)
