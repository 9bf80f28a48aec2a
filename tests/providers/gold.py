"""A model that knows the gold solution: it finds the task by the instruction that it is given."""

import json
from collections.abc import Callable, Mapping
from functools import cache

from env_server.env import Final, ToolCall
from env_server.gold import play_gold
from env_server.registry import Registry
from providers.asked import Asked, BadRequest
from providers.replies import Say

Usage = Mapping[str, int]


def growing(asked: Asked) -> Usage:
    """A usage as it is when every turn reads from a cache what the one before wrote into it."""
    turn = asked.turns
    cached = {"cache_read": 500 * turn, "cache_write_5m": 500}
    return {"input": 40 + turn, **cached, "output": 30 + turn, "reasoning": turn}


def gold(
    registry: Registry,
    usage: Callable[[Asked], Usage | None] = growing,
    calls_per_turn: int = 1,
    thinking: str = "",
) -> Callable[[Asked, int], Say]:
    """A script that plays the gold solution of the task in the request.

    Without tools in the request it speaks the JSON protocol.

    Args:
        registry: Has the task.
        usage: What each answer is said to have cost.
        calls_per_turn: Most calls in one answer.
        thinking: What it thinks before each answer.
    """
    by_instruction = {task.instruction: task for task in registry.tasks.values()}

    @cache
    def actions(instruction: str) -> list[ToolCall | Final]:
        found = [text for text in by_instruction if text in instruction]
        if not found:
            raise BadRequest(f"no task has the instruction {instruction[:200]!r}")
        return play_gold(by_instruction[max(found, key=len)], registry)[0].actions

    def script(asked: Asked, attempt: int) -> Say:
        protocol = not asked.body.get("tools")
        done = sum('"result"' in text for text in asked.told) if protocol else len(asked.results)
        most = 1 if protocol else calls_per_turn
        rest = actions(asked.instruction)[done:]
        said = _in_words(rest[0]) if protocol else _as_calls(rest[:most])
        return said._replace(usage=usage(asked), thinking=thinking)

    return script


def _as_calls(actions: list[ToolCall | Final]) -> Say:
    """The calls up to the answer, or else the answer."""
    if isinstance(actions[0], Final):
        return Say(actions[0].answer or "Done.")
    calls = [action for action in actions if isinstance(action, ToolCall)]
    return Say(calls=[(call.name, call.arguments_json) for call in calls])


def _in_words(action: ToolCall | Final) -> Say:
    if isinstance(action, Final):
        fields = {"action": "final", "action_input": action.answer}
    else:
        fields = {"action": action.name, "action_input": json.loads(action.arguments_json)}
    return Say(json.dumps({"thought": "I know the way.", **fields}))
