"""`railgym play`: a person is the agent, in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from env_server.cli.catalogue import find
from env_server.cli.connection import connected, own_server
from env_server.cli.exits import Failure, failing_on
from env_server.cli.options import (
    DEFAULT_LOG_DIR,
    NO_ACCESS,
    Access,
    Json,
    MoreTasks,
    ServerAddress,
    TlsCa,
    TlsCert,
    TlsKey,
    Token,
    open_registry,
)
from env_server.cli.output import say
from env_server.cli.run_options import Distractors, RenameTools

if TYPE_CHECKING:
    from railgym.client import Client


def play(
    task_id: Annotated[
        str | None,
        typer.Argument(
            show_default=False, help="The task. Default: asks for an environment and a task."
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="ID|MODULE:CLASS",
            show_default=False,
            help="Play this environment, without a task where none is given.",
        ),
    ] = None,
    tasks: MoreTasks = None,
    seed: Annotated[int, typer.Option(min=0, help="For the environment.")] = 0,
    distractors: Distractors = 0,
    rename_tools: RenameTools = False,
    log_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where a server of its own writes the log.")
    ] = DEFAULT_LOG_DIR,
    address: ServerAddress = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
) -> None:
    r"""Play a task yourself: you get what an agent gets, and `undo`.

    `help` says what you can type. Lines may also come from a pipe; --json answers each with a
    line of JSON.

    `railgym play typewriter/reference/a`

    `printf 'type_letter a\nfinal\n' | railgym play typewriter/reference/a`
    """
    from env_server.cli.player import Player
    from env_server.cli.view import JsonView, TextView
    from railgym.spaces import ToolShaping

    if address is None:
        open_registry([env] if env else [], tasks)  # says at once what cannot be found
        with failing_on(OSError):
            log_dir.mkdir(parents=True, exist_ok=True)
        server: AbstractContextManager[str] = own_server(
            log_dir, log_dir / "server.log", [env] if env else [], tasks or []
        )
    else:
        server = nullcontext(address)
    access = Access(token, tls_ca, tls_cert, tls_key) if address else NO_ACCESS
    with server as at, connected(at, access) as client:
        if env is None and task_id is None:
            env, task_id = _choose(client)
        shaping = ToolShaping(distractors, rename_tools)
        session = client.session(env, task_id, labels={"agent": "person"}, tools=shaping)
        Player(session, JsonView() if as_json else TextView(), seed).play(_lines("> "))
    if address is None:
        say(f"What you did is in {log_dir}: railgym score {log_dir}")


def _choose(client: Client) -> tuple[str, str | None]:
    """Asks for an environment, and for one of its tasks where it has any."""
    env_id = _ask("environment", [env.env_id for env in client.envs()])
    tasks = [task.task_id for task in client.tasks(env_id)]
    return env_id, _ask("task", tasks) if tasks else None


def _ask(kind: str, names: Sequence[str]) -> str:
    for number, name in enumerate(names, start=1):
        typer.echo(f"{number:4}  {name}")
    for line in _lines(f"{kind}, by number or name: "):
        if line.isdecimal() and 1 <= int(line) <= len(names):
            return names[int(line) - 1]
        try:
            return find(kind, line, names)
        except Failure as e:
            typer.echo(e)
    raise Failure(f"expected the number or name of one {kind}, got the end of the input")


def _lines(prompt: str) -> Iterator[str]:
    """What is typed, or comes from a pipe: line by line, without blank ones."""
    if sys.stdin.isatty():
        import readline  # noqa: F401  # editing and history for `input`
    else:
        prompt = ""
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            return
        if line:
            yield line
