"""Fresh questions for Relational, each about a drawn world of its own.

A question is kept only if its solution has as many calls as its level asks for, and its answer
does not stand in its text. One that missing data may end in "unknown" does so every other time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from env_server.envs.relational import Relational
from env_server.generate import long_questions as long
from env_server.generate import questions as short
from env_server.generate.row import Row, generated_id, generator_for, row
from env_server.generate.steps import Unfit
from env_server.generate.walk import AnswerKind, Question, Scene
from env_server.validators import plain

ENV_ID = "railgym/Relational-v1"

ASK: dict[str, tuple[Callable[[Scene], Question], ...]] = {
    "L1": (
        short.email_of_an_id,
        short.users_of_a_name,
        short.allergens_of_a_food,
        short.color_of_the_current_user,
        short.city_of_an_id,
        short.time_in_a_city,
        short.calories_of_a_food,
    ),
    "L2": (
        short.city_of_a_user,
        short.calories_of_a_user,
        short.before_noon_at_a_user,
        short.richest_food,
        short.weather_at_the_current_user,
        short.namesakes_in_a_city,
        short.same_provider,
        short.degrees_at_a_user,
        short.dearest_food,
    ),
    "L3": (
        long.calories_between_two,
        long.email_at_the_warmest,
        long.namesakes_before_noon,
        long.allergens_of_the_richest,
        long.calories_of_many_foods,
        long.time_at_the_hungriest,
        long.foods_with_an_allergen,
        long.allergens_of_many_foods,
        long.colors_of_ids,
    ),
}
"""What asks the questions of a level, in turn."""

CALLS = {"L1": (1, 2), "L2": (3, 6), "L3": (7, 12)}
"""Calls of a solution, both bounds included."""

USERS = {"L1": (20, 40), "L2": (30, 60), "L3": (60, 90)}
"""Users of a world, both bounds included."""

_BEFORE = (
    "Answer from the records alone, which only the tools can read. Names that differ in a letter "
    "are different names."
)

_ANSWER: dict[AnswerKind, tuple[str, str]] = {
    "text": ("Answer with that alone, without a sentence around it.", "answer_equals"),
    "number": ("Answer with the number alone.", "answer_number"),
    "time": ("Answer with the time alone, with or without the date.", "answer_contains"),
    "list": ("Answer with a list, commas between its items, or none.", "answer_set"),
    "yes_no": ("Answer yes or no.", "answer_yes_no"),
}
"""How to give an answer of each kind, and the validator for it."""

_MISSING = "If the records do not say, answer unknown."

_MOST_TRIES = 1_000


def generate(seed: int, count: int, level: str) -> list[Row]:
    """Makes tasks for Relational.

    Args:
        seed: Tasks of the same seed and level are the same.
        count: How many.
        level: "L1" one or two calls, "L2" three to six, "L3" seven to twelve, over missing data.

    Raises:
        ValueError: There is no such level.
    """
    rng = generator_for(seed, level)
    env = Relational()
    rows = []
    for number in range(1, count + 1):
        turn, place = divmod(number - 1, len(ASK[level]))
        task_id = generated_id("relational", seed, level, number)
        unknown_wanted = (turn + place) % 2 == 1
        rows.append(_draw_row(rng, env, task_id, level, ASK[level][place], unknown_wanted))
    return rows


def _draw_row(
    rng: np.random.Generator,
    env: Relational,
    task_id: str,
    level: str,
    ask: Callable[[Scene], Question],
    unknown_wanted: bool,
) -> Row:
    for _ in range(_MOST_TRIES):
        world, users = int(rng.integers(2**31)), int(rng.integers(*USERS[level], endpoint=True))
        scene = Scene(rng, env, world, users)
        with suppress(Unfit):
            question = ask(scene)
            _check(question, scene, env, level, unknown_wanted)
            options = {"world": world, "users": users}
            return _question_row(task_id, level, question, scene.walk.calls, options)
    raise RuntimeError(f"{ask.__name__} fits none of {_MOST_TRIES} worlds")


def _check(
    question: Question, scene: Scene, env: Relational, level: str, unknown_wanted: bool
) -> None:
    fewest, most = CALLS[level]
    if not fewest <= len(scene.walk.calls) <= most:
        raise Unfit(f"{len(scene.walk.calls)} calls")
    answer = env.reference(question.expected)
    is_unknown = answer in ("unknown", ["unknown"])
    if question.may_be_unknown and is_unknown != unknown_wanted:
        raise Unfit(f"the answer is {answer!r}")
    words = f" {plain(question.text)} "
    if question.kind != "yes_no" and f" {plain(str(answer))} " in words:
        raise Unfit(f"the question holds its answer, {answer!r}")


def _question_row(
    task_id: str, level: str, question: Question, calls: list[Row], options: dict[str, Any]
) -> Row:
    sentence, validator = _ANSWER[question.kind]
    hints = [_MISSING, sentence] if question.may_be_unknown else [sentence]
    evidence = [
        {"name": "must_call", "any_of": list(tools), "at_least": count}
        for tools, count in question.evidence
    ]
    return row(
        task_id,
        ENV_ID,
        level,
        "\n\n".join([_BEFORE, question.text, " ".join(hints)]),
        options=options,
        expected=question.expected,
        validators=[{"name": validator}, *evidence],
        gold=[*calls, {"final": "$expected"}],
        tags=["generated"],
    )
