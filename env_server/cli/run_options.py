"""Options of `railgym run` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Agents = Annotated[
    list[str] | None,
    typer.Option(
        "--agent",
        metavar="PROVIDER:MODEL|MODULE:FUNCTION|oracle|idle|random",
        show_default=False,
        help="Who plays: a model, for instance `anthropic:MODEL?temperature=0` (also `openai:`, "
        "`chat:` and `json:`, see the README); an agent of yours (see `railgym.agents`); the gold "
        "actions, nothing at all, or random actions. Repeatable. Default: the last three.",
    ),
]

Envs = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="ID|MODULE:CLASS",
        show_default=False,
        help="This environment only; it may be one of Gymnasium's or yours. Repeatable. "
        "Default: all with tasks.",
    ),
]

Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task", metavar="TASK_ID", show_default=False, help="This task only. Repeatable."
    ),
]

Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        show_default=False,
        help="The first N of each environment and level.",
    ),
]

Repeats = Annotated[int, typer.Option("--repeats", metavar="N", min=1, help="Tries at each task.")]

Seed = Annotated[int, typer.Option("--seed", min=0, help="Every trial's own seed follows from it.")]

Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        help="Most episodes at the same time. Calls of a model begin with three at once, and "
        "become more while all goes well.",
    ),
]

Distractors = Annotated[
    int,
    typer.Option(
        "--distractors",
        metavar="N",
        min=0,
        max=24,
        help="Show N tools of other domains among those of each environment.",
    ),
]

RenameTools = Annotated[
    bool,
    typer.Option("--rename-tools", help="Show tools under names that mean nothing."),
]

TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="SECONDS",
        min=0,
        show_default=False,
        help="End a trial after so long, as `time_limit`, which counts against the agent, be it "
        "before its first step. The time of each answer counts, however slow the provider is; "
        "waiting to be let out by the throttle and to try again does not. Default: none.",
    ),
]

Budget = Annotated[
    float | None,
    typer.Option(
        "--budget-usd",
        metavar="USD",
        min=0,
        show_default=False,
        help="Begin no more trials when the models have cost so much, with all that was played in "
        "the folder before; those that run come to their end. Default: no limit.",
    ),
]

PriceTables = Annotated[
    list[Path] | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        show_default=False,
        help="Ask this price table (TOML, see env_server/scoring/prices.toml) before the one that "
        "comes with Railgym. Models at a base_url are of the provider `openai-compatible`. Kept in "
        "the run's config.json. Repeatable; the last one is asked first.",
    ),
]

FailUnder = Annotated[
    float | None,
    typer.Option(
        "--fail-under",
        metavar="SHARE",
        min=0,
        max=1,
        show_default=False,
        help="Exit with 1 where an agent's success over its valid trials is under this, say 0.9.",
    ),
]

Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        show_default=False,
        help="Names the run's folder. Default: made from what is asked for, so that the same "
        "command goes on with the same run, and another one begins its own.",
    ),
]

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the run's folder goes.")]

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Delete what was played under this name, begin anew.")
]

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Only say what would be taken from before (reused; rescored where it has no score by "
        "this version yet), rerun (because an attempt came to nothing) and played for the first "
        "time, and estimate the cost by what each agent used so far.",
    ),
]
