"""Fresh jobs for Orders, each in a drawn shop of its own.

A job is kept only if its solution has as many calls as its level asks for, and no search could
serve for two. One that may turn out to be impossible does so every other time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np

from env_server.arguments import canonical_json
from env_server.envs.orders import WRITES, Orders
from env_server.envs.orders_books import REASONS
from env_server.envs.orders_lookups import FEWEST_CHARACTERS
from env_server.generate import orders_house as house
from env_server.generate import orders_refunds as refunds
from env_server.generate import orders_short as short
from env_server.generate import orders_stock as stock
from env_server.generate.orders_scene import Desk, Job
from env_server.generate.row import Row, generated_id, generator_for, row
from env_server.generate.steps import Unfit

ENV_ID = "railgym/Orders-v1"

JOBS: dict[str, tuple[Callable[[Desk], Job], ...]] = {
    "L1": (
        short.cancel_an_order,
        short.due_of_an_order,
        short.free_pieces,
        short.readdress_an_order,
        short.email_of_a_customer,
        short.put_pieces_aside,
        short.paid_for_a_line,
        short.days_of_a_category,
    ),
    "L2": (
        house.cancel_the_latest,
        refunds.refund_a_line,
        house.send_to_a_friend,
        house.cancel_the_open_one,
        stock.put_aside_as_many,
        refunds.refund_once_more,
        stock.resend_the_latest,
        stock.change_the_quantity,
        refunds.refund_half_a_line,
    ),
    "L3": (
        stock.reserve_a_basket,
        house.recall_a_product,
        refunds.refund_what_was_lost,
        house.move_a_household,
        refunds.take_two_things_back,
        house.sweep_for_fraud,
        refunds.resend_or_refund,
        stock.pass_pieces_on,
    ),
}
"""The jobs of a level, in turn."""

CALLS = {"L1": (1, 2), "L2": (3, 6), "L3": (7, 12)}
"""Calls of a solution, both bounds included."""

UNTIDY = {"L1": (20, 10), "L2": (30, 10), "L3": (40, 15)}
"""Options "noise" and "missing"."""

_BEFORE = (
    "You serve the customers of a shop, with its tools alone. Its rules stand in what the tools "
    "say of themselves. Before you change anything, look up what decides whether it may be done, "
    "and do not try what the rules forbid. Change what is asked for, and nothing else."
)

_MOST_TRIES = 3_000


def generate(seed: int, count: int, level: str) -> list[Row]:
    """Makes tasks for Orders.

    Args:
        seed: Tasks of the same seed and level are the same.
        count: How many.
        level: "L1" one or two calls, "L2" three to six, "L3" seven to twelve, over noise and
            missing data.

    Raises:
        ValueError: There is no such level.
    """
    rng = generator_for(seed, level)
    env = Orders()
    rows = []
    for number in range(1, count + 1):
        turn, place = divmod(number - 1, len(JOBS[level]))
        task_id = generated_id("orders", seed, level, number)
        make = JOBS[level][place]
        rows.append(_draw_row(rng, env, task_id, level, make, (turn + place) % 2 == 0))
    return rows


def _draw_row(
    rng: np.random.Generator,
    env: Orders,
    task_id: str,
    level: str,
    make: Callable[[Desk], Job],
    impossible: bool,
) -> Row:
    """Draws shops until one holds the job, with the end that is wanted where there are two."""
    noise, missing = UNTIDY[level]
    fewest, most = CALLS[level]
    for _ in range(_MOST_TRIES):
        world, customers = int(rng.integers(2**31)), int(rng.integers(15, 31))
        options = {"world": world, "customers": customers, "noise": noise, "missing": missing}
        desk = Desk(rng, env, options, impossible)
        with suppress(Unfit):
            job = make(desk)
            if fewest <= len(desk.steps.calls) <= most and not _share_a_search(desk):
                return _job_row(task_id, level, job, desk, options)
    raise RuntimeError(f"{make.__name__} fits none of {_MOST_TRIES} shops")


def _share_a_search(desk: Desk) -> bool:
    """Whether one search would find what two were made for."""
    given = [call["arguments"] for call in desk.steps.calls]
    searched = [arguments["text"].casefold() for arguments in given if "text" in arguments]
    return any(
        one[at : at + FEWEST_CHARACTERS] in other
        for one, other in combinations(searched, 2)
        for at in range(len(one) - FEWEST_CHARACTERS + 1)
    )


def _job_row(task_id: str, level: str, job: Job, desk: Desk, options: dict[str, Any]) -> Row:
    is_text = isinstance(job.answer, str)
    asked = {"calls": list(job.calls), "answer": job.answer}
    made = row(
        task_id,
        ENV_ID,
        level,
        "\n\n".join([_BEFORE, job.text if is_text else f"{job.text}\n\n{_how(job)}"]),
        options=options,
        expected=job.answer if isinstance(job.answer, str) else canonical_json(asked),
        validators=[*_ends(job), *_ways(job, desk)],
        gold=[*desk.steps.calls, {"final": "$expected" if is_text else "$expected.answer"}],
        tags=["generated", f"end:{'impossible' if desk.impossible else 'done'}"],
    )
    if not is_text:
        made["required_fields"] = ["outcome", *(["reason"] if desk.impossible else job.fields)]
    return made


def _how(job: Job) -> str:
    """How to answer with an object."""
    fields = "".join(f', "{name}": ...' for name in job.fields)
    meant = "; ".join(f"{name} is {words}" for name, words in job.fields.items())
    return (
        f'Answer with a JSON object and nothing else: {{"outcome": "done"{fields}}}, where '
        f"{meant}. If it cannot be done as a whole, change nothing and answer "
        '{"outcome": "impossible", "reason": ...}, where the reason is one of '
        f"{', '.join(REASONS)}."
    )


def _ends(job: Job) -> list[Row]:
    """What the end must be."""
    if isinstance(job.answer, str):
        return [{"name": job.answer_kind}]
    return [
        {"name": "state_equals", "field": "changes", "part": "changes"},
        {"name": "answer_fields", "part": "answer"},
    ]


def _ways(job: Job, desk: Desk) -> list[Row]:
    """What has to be called on the way, and what not."""
    rules: list[Row] = [
        {"name": "must_call", "any_of": list(tools), "at_least": count}
        for tools, count in job.evidence
    ]
    if desk.impossible or not job.calls:
        rules.append({"name": "must_not_call", "tools": list(WRITES)})
    else:
        rules += [{"name": "calls_in_order", "tools": list(tools)} for tools in job.in_order]
    if job.most_calls is not None:
        rules.append({"name": "max_calls", "n": job.most_calls})
    return rules
