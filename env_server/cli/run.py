"""`railgym run`: agents play tasks over gRPC, and the log is scored by replay."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from env_server.cli import run_options as asked
from env_server.cli.agents import SCRIPTED, find_agent
from env_server.cli.config import Config, full_names, plan_run
from env_server.cli.exits import Exit, Failure
from env_server.cli.folder import Folder
from env_server.cli.keys import identity
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
from env_server.cli.output import print_json, say
from env_server.cli.pricing import open_prices
from env_server.cli.results import complaints, exit_code, plan_json, result_json, show, show_plan
from env_server.cli.reuse import Earlier, shares
from env_server.cli.runs import Request, Run
from env_server.cli.spending import without_price

MAX_NAME_BYTES = 256
"""Of an agent, which is a label of its sessions."""

if TYPE_CHECKING:
    from env_server.scoring.prices import Prices


def run(
    agent: asked.Agents = None,
    env: asked.Envs = None,
    level: Levels = None,
    tag: Tags = None,
    task: asked.Tasks = None,
    tasks: MoreTasks = None,
    limit: asked.Limit = None,
    repeats: asked.Repeats = 1,
    seed: asked.Seed = 0,
    concurrency: asked.Concurrency = 8,
    distractors: asked.Distractors = 0,
    rename_tools: asked.RenameTools = False,
    time_limit: asked.TimeLimit = None,
    prices: asked.PriceTables = None,
    budget_usd: asked.Budget = None,
    fail_under: asked.FailUnder = None,
    name: asked.Name = None,
    out: asked.Out = Path("runs"),
    overwrite: asked.Overwrite = False,
    dry_run: asked.DryRun = False,
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

    Whatever ends it, nothing that was played is lost: the same command again plays only what is
    missing. So does another one under the same --name, which asks for more: what depends on the
    same task, tools, prompt, model, parameters, environment and seed is never played twice.

    Exits with 1 where a trial could not be played, an episode is not VERIFIED, or --fail-under is
    not met; with 4 where --budget-usd is used up; with 5 where a model's provider refuses.

    `railgym run --agent oracle --agent my_agent:play --level L3 --repeats 3 --name first`
    """
    config = Config(
        address=address,
        agents=list(dict.fromkeys(agent or SCRIPTED)),
        envs=full_names(env or ()),
        levels=list(level or ()),
        tasks=list(task or ()),
        tags=list(tag or ()),
        task_files=[str(path) for path in tasks or ()],
        limit=limit,
        repeats=repeats,
        seed=seed,
        distractors=distractors,
        rename_tools=rename_tools,
        time_limit=time_limit,
        concurrency=concurrency,
        budget_usd=budget_usd,
    )
    folder = Folder(out, config.default_name if name is None else name)
    access = Access(token, tls_ca, tls_cert, tls_key)
    request = _request(config, access, open_prices(prices or ()))
    if dry_run:
        _look(folder, request, overwrite=overwrite, as_json=as_json)
    else:
        _run(folder, request, fail_under, overwrite=overwrite, as_json=as_json)


def _request(config: Config, access: Access, prices: Prices) -> Request:
    registry = open_registry(() if config.address else config.envs, config.task_paths)
    _check_names(config.agents)
    agents = {name: find_agent(name, registry, config.tools) for name in config.agents}
    trials = plan_run(config, access, registry, agents)
    return Request(config, access, registry, agents, trials, prices)


def _check_names(agents: Iterable[str]) -> None:
    """Makes sure that a session can be labelled with the name of each agent."""
    for name in agents:
        if (size := len(name.encode())) > MAX_NAME_BYTES:
            expected = f"an agent's name of at most {MAX_NAME_BYTES} bytes"
            raise Failure(f"expected {expected}, got {size}: {name[:80]}...")


def _look(folder: Folder, request: Request, *, overwrite: bool, as_json: bool) -> None:
    """Says what the run would do."""
    earlier = Earlier() if overwrite else Run(folder, request).look()
    plan = shares(request.trials, earlier)
    print_json(plan_json(folder, plan)) if as_json else show_plan(folder, plan)


def _run(
    folder: Folder, request: Request, fail_under: float | None, *, overwrite: bool, as_json: bool
) -> None:
    kept = (
        f"What was played until then is in {folder.path}: the same command goes on from there, "
        f"and railgym score {folder.path} scores it."
    )
    if request.config.budget_usd is not None:
        known_by = {name: identity(name, agent) for name, agent in request.agents.items()}
        for name in without_price(known_by, request.prices):
            say(f"{name}: its model has no price, so --budget-usd does not hold it: see --prices")
    with folder.taken():
        if overwrite:
            folder.empty()
        try:
            outcome = Run(folder, request).play_and_score()
        except (KeyboardInterrupt, SystemExit):
            say(f"Stopped. {kept}")
            raise
        except Failure as e:
            if e.code != Exit.NO_SERVER:
                raise
            raise Failure(f"{e}\n{kept}", e.code) from e
    wrong = complaints(outcome, request.config, fail_under)
    for line in wrong:
        say(line)
    print_json(result_json(folder, outcome, wrong)) if as_json else show(folder, outcome)
    raise typer.Exit(exit_code(outcome, fail_under))
