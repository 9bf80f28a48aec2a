"""The gold solution of a task, played to fill in what its steps return.

A gold action may refer to what an earlier one returned, so that no result is typed in twice. It
is resolved by playing it in a fresh episode.
"""

from __future__ import annotations

import json
from typing import Any

from env_server.arguments import canonical_json
from env_server.env import Action, Final, StatefulEnv, ToolCall, ToolEnv
from env_server.episode import Episode, EpisodeSpec, Reply
from env_server.registry import Registry
from env_server.tasks import GoldFinal, Task


class GoldError(ValueError):
    """A gold solution that cannot be played."""


def play_gold(task: Task, registry: Registry) -> tuple[Episode, list[Reply]]:
    """Plays the gold solution of a task.

    Returns:
        The episode, whose `actions` are the resolved ones, and the reply to each.

    Raises:
        GoldError: An action refers to a result that is not there, or the episode ends early.
    """
    env = registry.env(task.env_id).make()
    episode = Episode(EpisodeSpec(task.env_id, task, task.options), env)
    replies: list[Reply] = []
    for number, gold in enumerate(task.gold, start=1):
        if episode.end is not None:
            raise GoldError(f"gold step {number}: the episode ended at step {number - 1}")
        results = [json.loads(reply.transition.observation) for reply in replies]
        if isinstance(gold, GoldFinal):
            action: Action = Final(_answer(gold.final, env, task))
        else:
            action = ToolCall(gold.tool, canonical_json(_resolve(gold.arguments, results, number)))
        replies.append(episode.step(number, action))
    return episode, replies


def _answer(text: str, env: StatefulEnv, task: Task) -> str:
    name, dot, part = text.partition(".")
    if name != "$expected":
        return text
    if task.expected is None or not isinstance(env, ToolEnv):
        raise GoldError('"$expected" stands in the gold of a task that expects nothing')
    expected = env.reference(task.expected)
    if dot:
        if not isinstance(expected, dict) or part not in expected:
            raise GoldError(f"{text!r} stands in gold, and no {part!r} in what is expected")
        expected = expected[part]
    if isinstance(expected, dict):
        return canonical_json(expected)
    if isinstance(expected, list):
        return ", ".join(str(item) for item in expected) or "none"
    return str(expected)


def _resolve(value: Any, results: list[dict[str, Any]], number: int) -> Any:
    """Replaces each `{"$step": k, "path": [...]}` in a value by what step k returned."""
    if isinstance(value, list):
        return [_resolve(item, results, number) for item in value]
    if not isinstance(value, dict):
        return value
    if "$step" not in value:
        return {key: _resolve(item, results, number) for key, item in value.items()}
    try:
        found = dict(enumerate(results, start=1))[value["$step"]]["result"]
        for part in value.get("path", []):
            found = found[part]
    except (IndexError, KeyError, TypeError):
        raise GoldError(f"gold step {number}: nothing stands at {value}") from None
    return found
