"""Trials that could not be played: whose fault that is, and where in the code it came up.

On the wire each of them ends as "api_error", which says nothing of the agent. Here it is told
whether a model could not be asked, or an agent's own code broke.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from env_server.errors import printable

if TYPE_CHECKING:
    from env_server.cli.trials import Played

Kind: TypeAlias = Literal["api_error", "server_error", "stopped", "agent_error"]


def kind_of(error: BaseException) -> Kind:
    """Says whose fault an error is.

    Returns:
        "api_error": of a model's provider. "server_error": the environment's server refused.
        "stopped": the run ended before. "agent_error": anything else that an agent's code raised.
    """
    from env_server.cli.attempt import Stopped
    from env_server.cli.exits import Failure
    from railgym.agents import ModelFailed
    from railgym.errors import RailgymError

    if isinstance(error, ModelFailed):
        return "api_error"
    if isinstance(error, RailgymError | Failure):
        return "server_error"
    return "stopped" if isinstance(error, Stopped) else "agent_error"


def failure_row(played: Played) -> dict[str, Any]:
    """A line of failures.jsonl about a trial that has an error."""
    from railgym.agents import ModelFailed

    trial, error = played.trial, _error_of(played)
    claim = error.claim if isinstance(error, ModelFailed) else None
    kind, place = kind_of(error), _place(error, trial.agent)
    crashed = kind == "agent_error"
    return {
        "agent": trial.agent,
        "env_id": trial.target.env_id,
        "task_id": trial.target.task.task_id if trial.target.task else None,
        "trial": trial.number,
        "key": trial.key,
        "kind": kind,
        "error": f"{type(error).__name__}: {error}",
        "at": place if crashed else None,
        "traceback": "".join(traceback.format_exception(error)) if crashed else None,
        "retries": claim.get("retries", []) if claim else [],
    }


def failure_lines(failed: Iterable[Played]) -> list[str]:
    """A line for each error of an agent, whatever the number of trials that it ended."""
    by_error: dict[tuple[str, str], list[Played]] = {}
    for played in failed:
        by_error.setdefault((played.trial.agent, _sort_of(played)), []).append(played)
    return [
        printable(f"{agent} at {_which(members)}: {_in_words(members[0])}")
        for (agent, _), members in by_error.items()
    ]


def _sort_of(played: Played) -> str:
    """What is the same for errors that need to be told once: words of a provider may hold ids."""
    from railgym.agents import ModelFailed

    error = _error_of(played)
    told = error.claim.get("error") if isinstance(error, ModelFailed) and error.claim else None
    if not isinstance(told, Mapping):
        return _in_words(played)
    return f"{type(error).__name__}: {told.get('type')} {told.get('status')}"


def _which(members: list[Played]) -> str:
    first = members[0].trial
    others = f" and {len(members) - 1} more" if len(members) > 1 else ""
    return f"{first.target.name}, try {first.number}{others}"


def _in_words(played: Played) -> str:
    error = _error_of(played)
    words, kind = f"{type(error).__name__}: {error}", kind_of(error)
    if kind != "agent_error":
        return words
    place = _place(error, played.trial.agent)
    return f"agent_error: {words}" + (f", at {place}" if place else "")


def _place(error: BaseException, agent: str) -> str | None:
    """File and line of an error: the last in the agent's module, or else the last of all."""
    frames = traceback.extract_tb(error.__traceback__)
    module = sys.modules.get(agent.partition(":")[0])
    source = getattr(module, "__file__", None)
    own = [frame for frame in frames if source and Path(frame.filename) == Path(source)]
    latest = (own or frames)[-1:]
    return f"{latest[0].filename}:{latest[0].lineno}" if latest else None


def _error_of(played: Played) -> BaseException:
    if played.error is None:
        raise ValueError("expected a trial that could not be played, got one that was")
    return played.error
