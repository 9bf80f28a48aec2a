"""A run: a folder that says what was asked for, what was played and what came of it.

`config.json` says what was asked for, `log/` is the episode log, `scores.json` and `report.html`
come from replaying it, and `server.log` holds the server's own messages. On a server of the
user's the log stays there, and the server replays it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from env_server.cli.agents import ORACLE
from env_server.cli.catalogue import Selection, envs_at, envs_of, select, tasks_at, tasks_of
from env_server.cli.connection import connected, own_server
from env_server.cli.exits import Failure, failing_on
from env_server.cli.options import Access
from env_server.cli.output import print_json, progress_bar, say
from env_server.cli.score import (
    REPORT,
    SCORES,
    print_table,
    problems,
    scores_of,
    scores_of_server,
)

if TYPE_CHECKING:
    from env_server.cli.agents import AgentFor
    from env_server.cli.trials import Played, Target, Trial
    from env_server.registry import Registry
    from env_server.scoring.summary import Summary
    from railgym.client import Client

CONFIG = "config.json"


class Config(NamedTuple):
    """What a run is asked to do; what stands in config.json.

    Attributes:
        name: Of its folder.
        run: Label "run" of its sessions; tells two runs on one server apart, whatever their names.
        railgym: The version.
        started: When (ISO 8601, UTC).
        address: Of the user's server; None: its own.
        agents: By name.
        envs: Environments; those that do not come with Railgym are added. Empty: all with tasks.
        levels: Of tasks; empty: all.
        tasks: By id; empty: all.
        tags: Tasks with one of these; empty: all.
        task_files: Added to the bundled ones.
        limit: Most tasks of each environment and level; None: all.
        repeats: Tries at each task.
        seed: Trials' own seeds follow from it.
        concurrency: Trials at the same time.
    """

    name: str
    run: str
    railgym: str
    started: str
    address: str | None
    agents: Sequence[str]
    envs: Sequence[str]
    levels: Sequence[str]
    tasks: Sequence[str]
    tags: Sequence[str]
    task_files: Sequence[str]
    limit: int | None
    repeats: int
    seed: int
    concurrency: int

    @property
    def task_paths(self) -> list[Path]:
        """The task files as paths."""
        return [Path(path) for path in self.task_files]


def plan_run(config: Config, access: Access, registry: Registry) -> list[Trial]:
    """Plans the trials of a run.

    Args:
        config: What is asked for.
        access: To the user's server.
        registry: What a server of its own will offer.

    Raises:
        Failure: Something that is asked for does not exist, or nothing fits.
    """
    from env_server.cli.trials import plan

    targets = _limited(_targets(config, access, registry), config.limit)
    trials = plan(config.agents, targets, config.repeats, config.seed)
    playable = [t for t in trials if t.agent != ORACLE or t.target.task is not None]
    if len(playable) < len(trials):
        say(f"{ORACLE} is left out where there is no task, and so no solution to play")
    if not playable:
        raise Failure("expected a selection that at least one task fits, got one that none does")
    return playable


def _targets(config: Config, access: Access, registry: Registry) -> list[Target]:
    """The selected tasks, and the environments that were named and have none."""
    from env_server.cli.trials import Target

    if config.address is None:
        tasks, envs = tasks_of(registry), envs_of(registry)
    else:
        tasks = tasks_at(config.address, access)
        envs = envs_at(config.address, access)
    which = Selection(config.envs, config.levels, config.tasks, config.tags)
    selected = select(tasks, which, [env.env_id for env in envs])
    targets = [Target(task.env_id, task) for task in selected]
    if not (config.levels or config.tasks or config.tags):
        bare = [e.env_id for e in envs if e.env_id in config.envs and not e.task_count]
        targets += [Target(env_id, None) for env_id in bare]
    return targets


def _limited(targets: Sequence[Target], limit: int | None) -> list[Target]:
    """The first `limit` targets of each environment and level."""
    taken: dict[tuple[str, str], int] = {}
    kept = []
    for target in targets:
        key = target.env_id, target.task.level if target.task else ""
        taken[key] = taken.get(key, 0) + 1
        if limit is None or taken[key] <= limit:
            kept.append(target)
    return kept


def new_folder(out: Path, name: str, *, overwrite: bool) -> Path:
    """Makes the folder of a run.

    Args:
        out: Where it goes.
        name: Its name.
        overwrite: Whether an earlier run of this name may be deleted; nothing else ever is.

    Raises:
        Failure: It cannot be made, or there is something in its place.
    """
    if Path(name).name != name or name in ("", "..") or len(name) > 100:
        raise Failure(f"expected a plain name of at most 100 characters, got {name[:80]!r}")
    folder = out / name
    if folder.exists() and not overwrite:
        raise Failure(f"{folder} exists: choose another --name, or --overwrite it")
    if folder.exists() and not (folder / CONFIG).is_file():
        raise Failure(f"{folder} is not the folder of a run (no {CONFIG} in it): not overwritten")
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
    except OSError as e:
        raise Failure(f"cannot make {folder}: {e.strerror}") from e
    return folder


def write_config(folder: Path, config: Config, trials: Sequence[Trial]) -> None:
    """Writes config.json: what was asked for, and the digests of the tasks that it came to."""
    digests = {t.target.name: t.target.task.sha256 for t in trials if t.target.task is not None}
    text = json.dumps({**config._asdict(), "trials": len(trials), "sha256": digests}, indent=1)
    with failing_on(OSError):
        (folder / CONFIG).write_text(text + "\n", encoding="utf-8")


def play_and_score(
    folder: Path,
    config: Config,
    access: Access,
    trials: Sequence[Trial],
    agents: dict[str, AgentFor],
    registry: Registry,
) -> tuple[list[Played], Summary]:
    """Plays every trial, and scores the log that came of it.

    Returns:
        The trials that could not be played, and the summary of all episodes.

    Raises:
        Failure: The server does not come up, or is gone.
    """
    from env_server.scoring.report import write_report
    from env_server.scoring.summary import summarise, write_scores

    if config.address is None:
        log = folder / "log"
        server = own_server(log, folder / "server.log", config.envs, config.task_paths)
        # It does not come back once it is gone: no patience.
        with server as address, connected(address, patience_seconds=0) as client:
            failed = _play(client, config, trials, agents)
        scores = scores_of(log, registry, total=len(trials))
    else:
        with connected(config.address, access) as client:
            failed = _play(client, config, trials, agents)
            scores = scores_of_server(client, config.run)
    summary = summarise(scores)
    with failing_on(OSError):
        write_scores(summary, folder / SCORES)
        write_report(summary, folder / REPORT, title=f"Run {config.name}")
    return failed, summary


def _play(
    client: Client, config: Config, trials: Sequence[Trial], agents: dict[str, AgentFor]
) -> list[Played]:
    """Plays every trial under a progress bar, and returns those that failed."""
    from env_server.cli.trials import Trials
    from railgym.errors import Unavailable

    failed, won, count = [], 0, 0
    with Trials(client, agents, config.run, config.concurrency) as pool, progress_bar() as bar:
        task = bar.add_task("play  ", total=len(trials), note="")
        for played in pool.play(trials):
            if isinstance(played.error, Unavailable):
                raise played.error
            if played.error is not None:
                failed.append(played)
            won, count = won + (played.reward == 1), count + 1
            bar.update(task, advance=1, note=f"success {won}/{count}")
    return failed


def show(folder: Path, summary: Summary, failed: Sequence[Played], *, as_json: bool) -> None:
    """Shows what came of a run: what could not be played, the table, and where the report is."""
    from env_server.scoring.table import notes, success_table

    for trial, _, error in failed:
        say(
            f"{trial.agent} at {trial.target.name}, try {trial.number}: "
            f"{type(error).__name__}: {error}"
        )
    if as_json:
        about: dict[str, Any] = {"folder": str(folder), "failed_trials": len(failed)}
        print_json({**about, "summary": summary.to_json()["summary"]})
        return
    print_table(success_table(summary))
    for line in [*notes(summary), *problems(summary.episodes)]:
        typer.echo(line)
    typer.echo(f"Scored by replay: {len(summary.episodes)} episodes. The report: {folder / REPORT}")
