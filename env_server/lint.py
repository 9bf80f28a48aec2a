"""Whether tasks are sound, found out by playing them.

The gold solution must earn exactly 1 without a fault; an agent that does nothing and one that
acts at random must earn 0; an instruction must not hold its answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from env_server import validators
from env_server.env import Final, ToolEnv
from env_server.episode import Episode, EpisodeSpec
from env_server.errors import RailgymError
from env_server.gold import GoldError, play_gold
from env_server.registry import EnvEntry, Registry
from env_server.tasks import Task
from railgym.agents import Agent, Briefing, idle, play, random
from railgym.spaces import ToolSpace

UNKNOWN = "unknown"
"""The answer where data are missing, which an instruction may offer as it offers yes and no."""

_GIVEN_AWAY = ("answer_equals", "answer_contains", "answer_number")
"""Validators of answers that an instruction must not hold."""


class Finding(NamedTuple):
    """Something wrong with a task."""

    task_id: str
    message: str


def lint(task: Task, registry: Registry) -> list[Finding]:
    """Plays a task with its gold solution, with nothing, and at random.

    Returns:
        What is wrong with it; empty where nothing is.
    """
    return [Finding(task.task_id, message) for message in _faults(task, registry)]


def _faults(task: Task, registry: Registry) -> Iterator[str]:
    try:
        entry = registry.env(task.env_id)
        unknown = [name for name in task.allowed_tools if name not in entry.tools]
        if entry.is_plain or unknown:
            yield f"expected tools of {task.env_id}, got {', '.join(unknown) or 'none'}"
            return
        if wrong := [*_rule_faults(task, entry)]:
            yield from wrong
            return
        yield from _gold_faults(task, registry)
        for agent in (idle, random):
            if reward := _reward(task, registry, agent):
                yield f"an agent that is {agent.__name__} earns {reward}, expected 0"
    except RailgymError as e:
        yield str(e)
    except (ValueError, TypeError, LookupError) as e:  # what a rule raises that fits no state
        yield f"a validator or the expected value fails: {type(e).__name__}: {e}"


def _rule_faults(task: Task, entry: EnvEntry) -> Iterator[str]:
    for rule in task.validators:
        needed, taken = validators.parameters(rule["name"])
        given = set(rule) - {"name"}
        if not needed <= given <= taken:
            expected = ", ".join(sorted(taken)) or "no parameters"
            yield f"validator {rule['name']}: expected {expected}; got {', '.join(sorted(given))}"
        named = [*rule.get("tools", ()), *rule.get("any_of", ())]
        if strange := [str(name) for name in named if name not in list(entry.tools)]:
            yield f"validator {rule['name']}: expected tools of the environment, got {strange}"


def _gold_faults(task: Task, registry: Registry) -> Iterator[str]:
    try:
        episode, replies = play_gold(task, registry)
    except GoldError as e:
        yield str(e)
        return
    for number, reply in enumerate(replies, start=1):
        if code := reply.transition.info.get("fault"):
            yield f"gold step {number} faults: {code}: {reply.transition.observation[:200]}"
    earned = sum(reply.transition.reward for reply in replies)
    if earned != 1 or episode.end not in ("final", "goal"):
        failed = [name for name, holds in (episode.verdict or {}).items() if not holds]
        yield f"gold earns {earned} and ends {episode.end}; failed: {', '.join(failed) or 'none'}"
    yield from _given_away(task, episode)


def _given_away(task: Task, episode: Episode) -> Iterator[str]:
    answers = [action.answer for action in episode.actions if isinstance(action, Final)]
    judged = any(rule["name"] in _GIVEN_AWAY for rule in task.validators)
    if judged and answers and answers[-1] not in ("", UNKNOWN):
        words, answer = validators.plain(task.instruction), validators.plain(answers[-1])
        if f" {answer} " in f" {words} ":
            yield f"the instruction holds the answer {answers[-1]!r}"


def _reward(task: Task, registry: Registry, agent: Agent) -> float:
    env = registry.env(task.env_id).make()
    episode = Episode(EpisodeSpec(task.env_id, task, task.options), env)
    assert isinstance(env, ToolEnv)
    seed = int(task.sha256[:8], 16)
    space = ToolSpace(episode.tools)
    briefing = Briefing(task.instruction, space, episode.start.observation, {}, seed)
    last = play(agent(briefing), lambda m: episode.step(episode.latest + 1, m.action).transition)
    return last.reward
