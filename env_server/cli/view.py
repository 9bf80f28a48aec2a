"""Shows an episode: to a person at a terminal, or as JSON lines to a program."""

from __future__ import annotations

from typing import Any

import typer

from env_server.cli.envs import signature, summary
from env_server.cli.output import print_json, print_rows
from railgym.actions import Transition
from railgym.session import Session

_CALLS = """\
TOOL VALUE ...        call a tool with its arguments in order:  search lisa "ice cream"
TOOL NAME=VALUE ...   ... or by name:                           search name=lisa
TOOL {JSON}           ... or as a model writes them:            search {"name": "lisa"}
final ANSWER          give your answer, which ends the episode; it may be empty"""

_VALUES = "VALUE                 take an action, as JSON:  1  or  [0.5, -1.0]"

_COMMANDS = """\
undo                  go back one step, in a copy of the session
again                 begin anew
state                 show the state
tools                 show what can be done
quit                  leave; so does the end of the input"""


class TextView:
    """For a person."""

    def goal(self, session: Session) -> None:
        """Shows what is to be done, and with what."""
        task, env = session.task, session.env
        title = env.env_id if task is None else f"{task.task_id}  ({env.env_id}, {task.level})"
        typer.echo(f"{title}\n\n{task.instruction if task else summary(env.description)}\n")
        self.tools(session)
        typer.echo("\n`help` says what you can type.\n")

    def tools(self, session: Session) -> None:
        """Shows what can be done."""
        env = session.env
        if env.tools:
            print_rows(
                ["tool", "what"], ([signature(t), summary(t.description)] for t in env.tools)
            )
        else:
            typer.echo(f"actions: {env.action_space}")

    def help(self, session: Session) -> None:
        """Shows what can be typed."""
        typer.echo(f"{_CALLS if session.env.tools else _VALUES}\n{_COMMANDS}")

    def state(self, session: Session) -> None:
        """Shows the state, where the environment has a form in text."""
        if "ansi" in session.env.render_modes:
            typer.echo(session.render())

    def observation(self, session: Session, observation: Any) -> None:
        """Shows what a reset gave."""
        typer.echo(f"[0] {observation}")
        self.state(session)

    def undone(self, session: Session) -> None:
        """Shows where an undo led."""
        typer.echo(f"[{session.steps}] as before the last step")
        self.state(session)

    def transition(self, session: Session, seen: Transition) -> None:
        """Shows what a step gave, and how the episode ended if it did."""
        limit = f" of at most {session.task.max_steps}" if session.task else ""
        typer.echo(f"[{session.steps}{limit}] {seen.observation}")
        if "fault" in seen.info:
            typer.echo(f"    a fault: {seen.info['fault']}")
        if seen.reward:
            typer.echo(f"    reward: {seen.reward:g}")
        self.state(session)
        if seen.terminated or seen.truncated:
            typer.echo(f"The episode ended: {session.end_reason}, reward {seen.reward:g}.")
            typer.echo("undo, again or quit?")

    def error(self, message: str) -> None:
        """Shows why nothing was done."""
        typer.echo(message)


class JsonView(TextView):
    """For a program: a JSON line for the goal and for each reset, step, state and error."""

    def goal(self, session: Session) -> None:
        """Shows what is to be done."""
        task = session.task
        print_json({"env_id": session.env.env_id, "task": None if task is None else task._asdict()})

    def tools(self, session: Session) -> None:
        """Shows the tools."""
        print_json({"tools": [tool._asdict() for tool in session.env.tools]})

    def help(self, session: Session) -> None:
        """Shows what can be typed."""
        print_json({"help": f"{_CALLS if session.env.tools else _VALUES}\n{_COMMANDS}"})

    def state(self, session: Session) -> None:
        """Shows the state as text; null where it has no such form."""
        shows = "ansi" in session.env.render_modes
        print_json({"state": session.render() if shows else None})

    def observation(self, session: Session, observation: Any) -> None:
        """Shows what a reset gave."""
        print_json({"step": 0, "observation": str(observation)})

    def undone(self, session: Session) -> None:
        """Shows where an undo led."""
        print_json({"step": session.steps, "undone": session.steps + 1})

    def transition(self, session: Session, seen: Transition) -> None:
        """Shows what a step gave."""
        print_json(
            {
                "step": session.steps,
                "observation": str(seen.observation),
                "reward": seen.reward,
                "terminated": seen.terminated,
                "truncated": seen.truncated,
                "fault": seen.info.get("fault") if session.env.tools else None,
                "end_reason": session.end_reason,
            }
        )

    def error(self, message: str) -> None:
        """Shows why nothing was done."""
        print_json({"error": message})
