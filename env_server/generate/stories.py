"""Short problems for MultiverseMath: stories with numbers drawn into them, and formulas.

In another universe the order of operations decides the result, so each text says which comes when.
"""

from __future__ import annotations

from env_server.envs.expression import Number, Operation, read_expression
from env_server.envs.multiverse_math import ARITIES
from env_server.generate.problem import Problem, Rng, numbers, pick, small_numbers

SHORT_STORIES = (
    ("A crate holds {a} jars of honey. How many jars do {b} crates hold?", "multiply({b}, {a})"),
    ("{a} swallows sit on a wire and {b} more join them. How many are there?", "add({a}, {b})"),
    ("Of {a} seats {x} are taken. How many seats are free?", "subtract({a}, {x})"),
    ("A rope of {a} metres is cut into {x} equal pieces. How long is one?", "divide({a}, {x})"),
    ("What is {x} to the power of {y}?", "power({x}, {y})"),
    ("What is the logarithm of {a} to the base {x}?", "log({a}, {x})"),
    ("What is the sine of {x} radians?", "sin({x})"),
    ("What is the cosine of {x} radians?", "cos({x})"),
    ("What does negate make of {a}?", "negate({a})"),
    (
        "A wheel is {a} centimetres across. How far does it roll in one turn? Multiply pi by its "
        "width.",
        "multiply(pi(), {a})",
    ),
    (
        "A bakery sells {a} rolls in the morning and {b} in the afternoon of each day. How many "
        "does it sell in {x} days? Add up one day first, then multiply.",
        "multiply(add({a}, {b}), {x})",
    ),
    (
        "A tank of {a} litres loses {x} litres through a leak. Subtract those, then divide the "
        "rest among {y} barrels. How many litres go into one?",
        "divide(subtract({a}, {x}), {y})",
    ),
    ("Raise {x} to the power of {y}, then divide by {a}.", "divide(power({x}, {y}), {a})"),
    (
        "Take the logarithm of {a} to the base {x}, then multiply it by {y}.",
        "multiply(log({a}, {x}), {y})",
    ),
    ("Take the sine of {x} radians, then negate it.", "negate(sin({x}))"),
)
"""One or two calls each. {a} to {d} stand for numbers from 11 to 98, {x} and {y} for 2 to 9."""

LONG_STORIES = (
    (
        "A culture of {a} cells doubles every {x} minutes. How many cells are there after {b} "
        "minutes? Divide the time by the doubling time, raise 2 to the power of the result, and "
        "multiply that by the cells at the start.",
        "multiply(power(2, divide({b}, {x})), {a})",
    ),
    (
        "What is the sine of an angle of {a} degrees? Multiply the degrees by pi and divide by "
        "180 to have radians, then take the sine.",
        "sin(divide(multiply({a}, pi()), 180))",
    ),
    (
        "A lorry drives {x} hours at {a} km/h and {y} hours at {b} km/h. What is its mean speed? "
        "Multiply each speed by its hours, add the two distances, and divide them by the sum of "
        "the hours.",
        "divide(add(multiply({a}, {x}), multiply({b}, {y})), add({x}, {y}))",
    ),
    (
        "A pasture is {a} metres long and {b} metres wide. How many posts does its fence need? "
        "Add length and width, multiply by 2, subtract {x} metres for the gate, and divide by the "
        "{y} metres between two posts.",
        "divide(subtract(multiply(add({a}, {b}), 2), {x}), {y})",
    ),
    (
        "How many buckets of {a} litres does a round pool hold that is {y} metres deep and has a "
        "radius of {x} metres? Raise the radius to the power of 2, multiply by pi, multiply by "
        "the depth, multiply by 1000 to have litres, and divide by the litres of a bucket.",
        "divide(multiply(multiply(multiply(power({x}, 2), pi()), {y}), 1000), {a})",
    ),
    (
        "Four children weigh {a}, {b}, {c} and {d} kilograms. What is their mean weight? Add up "
        "the four weights, and divide the sum by 4.",
        "divide(add(add(add({a}, {b}), {c}), {d}), 4)",
    ),
    (
        "A sound has a power of {a}, and the faintest that can be heard has one of {x}. How many "
        "decibels is that? Divide the first power by the second, take the logarithm to the base "
        "10, and multiply it by 10.",
        "multiply(log(divide({a}, {x}), 10), 10)",
    ),
    (
        "A ladder of {a} feet leans on a wall at {x} radians. How far above a ledge of {y} feet "
        "does it end? Multiply its length by the sine of the angle, then subtract the ledge from "
        "that. Negate the result, since the plan counts downwards.",
        "negate(subtract(multiply({a}, sin({x})), {y}))",
    ),
)
"""Three to six calls each."""

INFIX = {"multiply": "*", "add": "+", "divide": "/", "subtract": "-", "power": "^"}


def draw_short_story(rng: Rng) -> Problem:
    """Draws a story of one or two calls."""
    return _fill(rng, *pick(rng, SHORT_STORIES, 1)[0])


def draw_long_story(rng: Rng) -> Problem:
    """Draws a story of three to six calls."""
    return _fill(rng, *pick(rng, LONG_STORIES, 1)[0])


def draw_formula(rng: Rng) -> Problem:
    """Draws a formula of three to six calls."""
    solution = _draw_operation(rng, int(rng.integers(3, 7)))
    text = (
        f"Work out {_in_symbols(solution)}, from the innermost brackets outwards. A ^ is a power, "
        "log(x, b) the logarithm of x to the base b."
    )
    return Problem(text, solution)


def _fill(rng: Rng, text: str, solution: str) -> Problem:
    drawn = [*numbers(rng, 4), *small_numbers(rng, 2)]
    values = dict(zip("abcdxy", drawn, strict=True))
    read = read_expression(solution.format(**values), ARITIES)
    assert isinstance(read, Operation)
    return Problem(text.format(**values), read)


def _draw_operation(rng: Rng, calls: int) -> Operation:
    """Draws a call that holds `calls` calls, itself included; exponents and bases are numbers."""
    if calls == 1 and rng.random() < 0.2:
        return Operation("pi")
    kind = pick(rng, ("negate", "sin", "cos", "log", "power", *INFIX), 1)[0]
    if ARITIES[kind] == 1:
        return Operation(kind, (_draw_operand(rng, calls - 1),))
    if kind in ("log", "power"):
        return Operation(kind, (_draw_operand(rng, calls - 1), int(rng.integers(2, 5))))
    left = int(rng.integers(calls))
    return Operation(kind, (_draw_operand(rng, left), _draw_operand(rng, calls - 1 - left)))


def _draw_operand(rng: Rng, calls: int) -> Operation | Number:
    if calls:
        return _draw_operation(rng, calls)
    return int(rng.integers(21, 999)) / 10 if rng.random() < 0.3 else int(rng.integers(2, 60))


def _in_symbols(node: Operation | Number) -> str:
    """Writes a call in usual notation, with a pair of brackets around each operation."""
    if not isinstance(node, Operation):
        return str(node)
    operands = [_in_symbols(operand) for operand in node.operands]
    if node.name in INFIX:
        return f"({f' {INFIX[node.name]} '.join(operands)})"
    return f"{node.name}({', '.join(operands)})" if operands else node.name
