"""`railgym run`: agents play tasks over gRPC, and the log is scored by replay."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from env_server.cli.agents import SCRIPTED, find_agent
from env_server.cli.exits import Exit
from env_server.cli.options import (
    Access,
    Json,
    Levels,
    MoreTasks,
    ServerAddress,
    Tags,
    TlsCa,
    TlsCert,
    TlsKey,
    Token,
    open_registry,
)
from env_server.cli.output import say
from env_server.cli.runs import Config, new_folder, plan_run, play_and_score, show, write_config
from env_server.cli.score import verdict
from railgym._version import __version__


def run(
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="oracle|idle|random|MODULE:FUNCTION",
            show_default=False,
            help="Who plays: the gold actions, nothing at all, random actions, or an agent of "
            "yours (see `railgym.agents`). Repeatable. Default: the first three.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID|MODULE:CLASS",
            show_default=False,
            help="This environment only; it may be one of Gymnasium's or yours. Repeatable. "
            "Default: all with tasks.",
        ),
    ] = None,
    level: Levels = None,
    tag: Tags = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK_ID", show_default=False, help="This task only. Repeatable."),
    ] = None,
    tasks: MoreTasks = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            show_default=False,
            help="The first N of each environment and level.",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Tries at each task.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Every trial's own seed follows from it.")] = 0,
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, help="Episodes that run at the same time.")
    ] = 8,
    name: Annotated[
        str | None,
        typer.Option(show_default=False, help="Names the run's folder. Default: the time, in UTC."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the run's folder goes.")] = Path(
        "runs"
    ),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an earlier run of this name.")
    ] = False,
    address: ServerAddress = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
) -> None:
    """Let agents play tasks over gRPC, score the log by replay, and write a report.

    Without options: three scripted agents on every bundled task. On a server of your own
    (--address) the log stays there, and the server replays it.

    Exits with 1 where a trial could not be played or an episode is not VERIFIED.

    `railgym run --agent oracle --agent my_agent:play --level L3 --repeats 3 --name first`
    """
    now = datetime.now(UTC)
    name = now.strftime("%Y%m%d-%H%M%S") if name is None else name
    config = Config(
        name=name,
        run=f"{name}.{secrets.token_hex(4)}",
        railgym=__version__,
        started=now.isoformat(timespec="seconds"),
        address=address,
        agents=list(dict.fromkeys(agent or SCRIPTED)),
        envs=list(dict.fromkeys(env or ())),
        levels=list(level or ()),
        tasks=list(task or ()),
        tags=list(tag or ()),
        task_files=[str(path) for path in tasks or ()],
        limit=limit,
        repeats=repeats,
        seed=seed,
        concurrency=concurrency,
    )
    access = Access(token, tls_ca, tls_cert, tls_key)
    _run(config, access, out, overwrite=overwrite, as_json=as_json)


def _run(config: Config, access: Access, out: Path, *, overwrite: bool, as_json: bool) -> None:
    registry = open_registry(() if config.address else config.envs, config.task_paths)
    agents = {name: find_agent(name, registry) for name in config.agents}
    trials = plan_run(config, access, registry)
    folder = new_folder(out, config.name, overwrite=overwrite)
    write_config(folder, config, trials)
    try:
        failed, summary = play_and_score(folder, config, access, trials, agents, registry)
    except KeyboardInterrupt:
        say(f"Stopped. What was played until then is in {folder}: railgym score {folder}")
        raise
    show(folder, summary, failed, as_json=as_json)
    raise typer.Exit(Exit.BAD if failed else verdict(summary.episodes))
