"""The four metrics of LangChain Benchmarks under their own names, computed as that suite does.

They stand here so that its published tables can be compared with. Know what they hide: only the
names of tools are compared, so that wrong arguments pass; a mistake that was mended costs the
whole of the first metric; an agent that does nothing has the best ratio; and "correctness" counts
an answer that was guessed. There it was a model's opinion; here the task's own validators of the
answer decide, since a reference that is a number, a word or a list needs no opinion.

What a task expects stands in its tags: "langchain_steps:NAME,NAME", and "langchain_order:any"
where the order does not matter. A task without the first is not theirs, and has no such metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from env_server.scoring.replayed import Replayed

PARSE_ERROR = "_Exception"
"""The step that their agents take for an output that cannot be parsed."""

_STEPS = "langchain_steps:"
_ANY_ORDER = "langchain_order:any"


class Expected(NamedTuple):
    """What a row of theirs expects.

    Attributes:
        names: Names of tools.
        ordered: Whether they must be called in this order.
    """

    names: tuple[str, ...]
    ordered: bool


def intermediate_steps(run: Replayed) -> float | None:
    """1 where the names of all calls are the expected ones, else 0.

    As lists, or as multisets where the order does not matter. Failed and repeated calls, unknown
    tools and output that cannot be parsed count as steps.
    """
    expected = _expected(run)
    if expected is None:
        return None
    names = called(run)
    if expected.ordered:
        return float(names == list(expected.names))
    return float(sorted(names) == sorted(expected.names))


def step_ratio(run: Replayed) -> float | None:
    """Calls over expected calls: 0 where no tool was called. None where none is expected."""
    expected = _expected(run)
    if expected is None or not expected.names:
        return None
    return len(called(run)) / len(expected.names)


def final_state(run: Replayed) -> float | None:
    """1 where the state equals the expected one, else 0. None where the row expects no state."""
    task = run.task
    if task is None or run.gold is None or _expected(run) is None:
        return None
    if all(rule["name"] != "state_equals" for rule in task.validators):
        return None
    return float(run.episode.state_hash == run.gold.states[-1])


def correctness(run: Replayed) -> float | None:
    """1 where the answer is the expected one, whatever led to it, else 0.

    None where the answer does not count.
    """
    if _expected(run) is None or run.answer_holds is None:
        return None
    return float(run.answer_holds)


def called(run: Replayed) -> list[str]:
    """The steps that their agents would report: names of tools, and `PARSE_ERROR`."""
    names = {call.step: call.name for call in run.episode.calls}
    unread = [step for step, code in run.faults.items() if code == "format_error"]
    names.update(dict.fromkeys(unread, PARSE_ERROR))
    return [names[step] for step in sorted(names)]


def _expected(run: Replayed) -> Expected | None:
    return None if run.task is None else _read_tags(tuple(run.task.tags))


@lru_cache(maxsize=4096)
def _read_tags(tags: tuple[str, ...]) -> Expected | None:
    for tag in tags:
        if tag.startswith(_STEPS):
            names = tag.removeprefix(_STEPS)
            return Expected(tuple(names.split(",")) if names else (), _ANY_ORDER not in tags)
    return None


METRICS: dict[str, Callable[[Replayed], float | None]] = {
    "Intermediate steps correctness": intermediate_steps,
    "# steps / # expected steps": step_ratio,
    "Correct Final State": final_state,
    "correctness": correctness,
}
