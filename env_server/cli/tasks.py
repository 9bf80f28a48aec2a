"""`railgym tasks`: lists, shows, checks and makes tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from env_server.cli.catalogue import Selection, envs_at, find, select, tasks_at
from env_server.cli.exits import Exit, failing_on
from env_server.cli.options import (
    Access,
    Json,
    Level,
    Levels,
    MoreEnvs,
    MoreTasks,
    RemoteAddress,
    Tags,
    TlsCa,
    TlsCert,
    TlsKey,
    Token,
    open_registry,
)
from env_server.cli.output import print_json, print_rows, say, with_progress

if TYPE_CHECKING:
    from env_server.registry import Registry
    from env_server.tasks import Task, TaskError

app = typer.Typer(no_args_is_help=True, help="List, show, check and make tasks.")

_HIDDEN = ("expected", "validators", "gold")
_SHOWN_FIRST = ("task_id", "env_id", "level", "instruction")


@app.command("list")
def list_tasks(
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="ENV_ID", show_default=False, help="Of this one only. Repeatable."),
    ] = None,
    level: Levels = None,
    tag: Tags = None,
    address: RemoteAddress = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
) -> None:
    """List tasks.

    `railgym tasks list --env railgym/Relational-v1 --level L3`
    """
    access = Access(token, tls_ca, tls_cert, tls_key)
    names = [info.env_id for info in envs_at(address, access)] if env else []
    which = Selection(envs=env or (), levels=level or (), tags=tag or ())
    found = select(tasks_at(address, access), which, names)
    if as_json:
        print_json([task._asdict() for task in found])
    else:
        rows = ([t.task_id, t.level, t.max_steps, " ".join(t.instruction.split())] for t in found)
        print_rows(["task", "level", "steps", "instruction"], rows)


@app.command()
def show(
    task_id: Annotated[str, typer.Argument(help="The task.")],
    gold: Annotated[
        bool, typer.Option("--gold", help="Show its solution, and what counts as success, too.")
    ] = False,
    tasks: MoreTasks = None,
    as_json: Json = False,
) -> None:
    """Show one task: its goal, its start state and its rails.

    `railgym tasks show typewriter/reference/dog --gold`
    """
    task = open_registry(tasks=tasks).tasks
    row = json.loads(task[find("task", task_id, task)].row())
    if not gold:
        row = {key: value for key, value in row.items() if key not in _HIDDEN}
    if as_json:
        print_json(row)
        return
    typer.echo(f"{row['task_id']}  ({row['env_id']}, {row['level']})\n\n{row['instruction']}\n")
    for key, value in row.items():
        if key == "gold":
            lines = [f"  {number}. {_action(a)}" for number, a in enumerate(value, start=1)]
            typer.echo("\n".join(["gold:", *lines]))
        elif key not in _SHOWN_FIRST:
            typer.echo(f"{key}: {value if isinstance(value, str) else json.dumps(value)}")


class Wrong(NamedTuple):
    """Something wrong with a task, and where it stands.

    Attributes:
        place: FILE:LINE.
        task_id: Empty where the line cannot be read.
        message: What was expected, and what came.
    """

    place: str
    task_id: str
    message: str


@app.command()
def lint(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(show_default=False, help="Files or folders. Default: the bundled tasks."),
    ] = None,
    env: MoreEnvs = None,
    as_json: Json = False,
) -> None:
    """Check tasks by playing them; exits with 1 where one is wrong.

    The gold solution must earn 1 without a fault. Doing nothing must earn 0, and so must acting
    at random. A line that cannot be read is reported, and the others are checked all the same.

    `railgym tasks lint my_tasks.jsonl`
    """
    from env_server.tasks import bundled_folder, scan_tasks

    registry = open_registry(env)
    lines = list(scan_tasks(paths or [bundled_folder()]))
    wrong = []
    for place, found in with_progress(lines, "lint", total=len(lines)):
        wrong += _check(place, found, registry)
    if as_json:
        print_json([item._asdict() for item in wrong])
    else:
        for place, task_id, message in wrong:
            typer.echo(f"{place}: {task_id}: {message}" if task_id else message)
    say(f"{len(lines)} tasks, {len(wrong)} findings")
    raise typer.Exit(Exit.BAD if wrong or not lines else Exit.OK)


@app.command()
def generate(
    env_id: Annotated[str, typer.Argument(help="The environment.")],
    level: Annotated[
        list[Level] | None,
        typer.Option(show_default=False, help="Of this one only. Default: all three. Repeatable."),
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="So many of each level.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives other tasks.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", show_default=False, help="Default: stdout."),
    ] = None,
) -> None:
    """Make fresh tasks that no agent has seen, one JSON line each.

    The same seed gives the same tasks for ever.

    `railgym tasks generate railgym/MultiverseMath-v1 --level L2 --count 50 --seed 7 -o fresh.jsonl`

    `railgym serve --tasks fresh.jsonl`
    """
    from env_server.generate import GENERATORS

    make = GENERATORS[find("generator for", env_id, GENERATORS)]
    rows = [row for one in level or list(Level) for row in make(seed, count, one.value)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if output is None:
        typer.echo(text, nl=False)
    else:
        with failing_on(OSError):
            output.write_text(text, encoding="utf-8")
        say(f"{len(rows)} tasks in {output}")


def _check(place: str, found: Task | TaskError, registry: Registry) -> list[Wrong]:
    from env_server.lint import lint as lint_task
    from env_server.tasks import Task

    if not isinstance(found, Task):
        return [Wrong(place, "", str(found))]
    return [Wrong(place, *finding) for finding in lint_task(found, registry)]


def _action(gold: dict[str, Any]) -> str:
    if "final" in gold:
        return f"final {gold['final']}"
    return f"{gold['tool']} {json.dumps(gold.get('arguments', {}))}"
