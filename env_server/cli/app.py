"""Puts the commands together, and says what all of them have in common."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from env_server.cli import compare, envs, health, log, play, run, score, serve, tasks
from env_server.cli.exits import MEANINGS, Failure
from railgym._version import __version__


class Railgym(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; its failure is a line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except Failure as e:
            typer.echo(f"railgym: {e}", err=True)
            raise typer.Exit(e.code) from None


EXIT_CODES = "\n".join(f"- **{code:d}** {meaning}" for code, meaning in MEANINGS.items())

app = typer.Typer(
    cls=Railgym,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Exit codes:\n\n{EXIT_CODES}",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"railgym {__version__}")
        raise typer.Exit


@app.callback()
def railgym(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Stateful environments for agents behind gRPC, with a log that is scored by replay.

    First steps:

    - `railgym run` lets three scripted agents play every task, and writes a report
    - `railgym play` lets you try a task yourself
    - `railgym serve` hosts the environments for your own agent
    - `railgym score` replays what it did, and scores it

    Results go to stdout, progress and messages to stderr. `--json` gives a result to a program.
    """


app.command()(serve.serve)
app.command()(envs.envs)
app.add_typer(tasks.app, name="tasks")
app.command()(run.run)
app.command()(play.play)
app.command()(score.score)
app.command()(score.report)
app.command()(compare.compare)
app.add_typer(log.app, name="log")
app.command()(health.health)
