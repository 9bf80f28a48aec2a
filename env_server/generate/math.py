"""Fresh word problems for MultiverseMath, each in a universe of its own.

A problem is kept only if its value is of a sensible size, stands nowhere in its text, and is
neither what our arithmetic gives nor what the public reference universe gives: memory is no help.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from env_server.envs.expression import Operation
from env_server.envs.multiverse_math import OURS, MultiverseMath, Universe
from env_server.generate.problem import Problem, Rng
from env_server.generate.row import Row, generated_id, generator_for, row
from env_server.generate.stories import draw_formula, draw_long_story, draw_short_story
from env_server.generate.tables import draw_notebook, draw_order, draw_readings

ENV_ID = "railgym/MultiverseMath-v1"

DRAW: dict[str, tuple[Callable[[Rng], Problem], ...]] = {
    "L1": (draw_short_story,),
    "L2": (draw_long_story, draw_formula),
    "L3": (draw_order, draw_readings, draw_notebook),
}
"""What draws the problems of a level, in turn."""

CALLS = {"L1": (1, 2), "L2": (3, 6), "L3": (7, 12)}
"""Calls of a solution, both bounds included."""

SMALLEST, GREATEST = 1e-3, 1e9
"""Bounds of a value, its sign aside."""

_BEFORE = (
    "You are in another universe. Its arithmetic is not ours, and only the tools know it: make one "
    "call for each operation, and go on with what it returned."
)

_AFTER = "Answer with the number alone; it may be off by one part in a million."


def generate(seed: int, count: int, level: str) -> list[Row]:
    """Makes tasks for MultiverseMath.

    Args:
        seed: Tasks of the same seed and level are the same.
        count: How many.
        level: "L1" one or two calls, "L2" three to six, "L3" seven to twelve, over tables with
            lines that do not count and data that miss.

    Raises:
        ValueError: There is no such level.
    """
    rng = generator_for(seed, level)
    rows = []
    for number in range(1, count + 1):
        problem, universe = _draw_sound(rng, DRAW[level][number % len(DRAW[level])], level)
        task_id = generated_id("multiverse_math", seed, level, number)
        rows.append(problem_row(task_id, level, problem, {"universe": universe}, ["generated"]))
    return rows


def problem_row(
    task_id: str, level: str, problem: Problem, options: dict[str, Any], tags: list[str]
) -> Row:
    """The task to solve a problem, with as many calls as its solution has."""
    calls = gold_calls(problem.solution)
    used = [name for name in MultiverseMath.TOOLS if name in {call["tool"] for call in calls}]
    return row(
        task_id,
        ENV_ID,
        level,
        f"{_BEFORE}\n\n{problem.text}\n\n{_AFTER}",
        options=options,
        expected=str(problem.solution),
        validators=[
            {"name": "answer_number", "tolerance": 1e-6},
            {"name": "must_call", "any_of": used, "at_least": len(calls)},
        ],
        gold=[*calls, {"final": "$expected"}],
        tags=tags,
    )


def gold_calls(solution: Operation) -> list[Row]:
    """The calls of a solution, innermost first; what occurs twice is called once."""
    calls: list[Row] = []
    numbers: dict[Operation, int] = {}

    def argument(node: Operation | int | float) -> Any:
        if not isinstance(node, Operation):
            return node
        if node not in numbers:
            names = MultiverseMath.TOOLS[node.name].spec.parameters["properties"]
            arguments = dict(zip(names, map(argument, node.operands), strict=True))
            calls.append({"tool": node.name, "arguments": arguments})
            numbers[node] = len(calls)
        return {"$step": numbers[node]}

    argument(solution)
    return calls


def _draw_sound(rng: Rng, draw: Callable[[Rng], Problem], level: str) -> tuple[Problem, int]:
    """Draws a problem and a universe together: in some universes two operators cancel out."""
    while True:
        problem, universe = draw(rng), int(rng.integers(2**31))
        if _fits(problem, level) and _is_sound(problem, universe):
            return problem, universe


def _fits(problem: Problem, level: str) -> bool:
    fewest, most = CALLS[level]
    return fewest <= len(gold_calls(problem.solution)) <= most


def _is_sound(problem: Problem, universe: int) -> bool:
    env = MultiverseMath()
    env.reset(options={"universe": universe})
    try:
        value = env.reference(str(problem.solution))
    except ValueError:
        return False
    known = [float(text) for text in re.findall(r"\d+(?:\.\d+)?", problem.text)]
    for memory in (OURS, Universe()):
        env.universe = memory
        with suppress(ValueError):
            known.append(env.reference(str(problem.solution)))
    sensible = SMALLEST <= abs(value) <= GREATEST
    return sensible and not any(math.isclose(abs(value), abs(k), rel_tol=1e-3) for k in known)
