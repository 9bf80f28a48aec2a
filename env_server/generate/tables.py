"""Long problems for MultiverseMath: tables in which some lines do not count and some data miss."""

from __future__ import annotations

from env_server.envs.expression import Number, Operation
from env_server.generate.problem import (
    Problem,
    Rng,
    bullets,
    numbers,
    pick,
    small_numbers,
    total,
)

ITEMS = ("bolts", "brackets", "cables", "fuses", "hinges", "lamps", "locks", "pipes", "valves")

SHELVES = ("north", "east", "south", "west")

NAMES = "bcdfghjkmnpqrstvwz"
"""Names of quantities: letters that are no words, nor mistaken for digits."""

LINKS = {
    "multiply": "{0} times {1}",
    "add": "{0} plus {1}",
    "divide": "{0} divided by {1}",
    "subtract": "{0} minus {1}",
}


def draw_order(rng: Rng) -> Problem:
    """Draws an order list with cancelled lines and missing numbers: 7, 9 or 11 calls."""
    drawn = numbers(rng, 16)
    pieces, prices = drawn[:8], drawn[8:]
    counted = sorted(pick(rng, range(8), int(rng.integers(3, 6))))
    missing = pick(rng, range(1, 8), 2)
    lines = []
    for i, item in enumerate(pick(rng, ITEMS, 8)):
        if i in missing:
            pieces[i] = pieces[i - 1]
        shown = "?" if i in missing else pieces[i]
        status = "ordered" if i in counted else "cancelled"
        shelf = pick(rng, SHELVES, 1)[0]
        lines.append(f"{item}: {shown} at {prices[i]} each, shelf {shelf} {i + 1}, {status}")
    voucher, people = small_numbers(rng, 2)
    text = (
        f"An order list:\n{bullets(lines)}\nA ? means: as many as on the line right above, be that "
        "ordered or cancelled. On each ordered line multiply pieces by price. Add these costs up, "
        f"subtract a voucher of {voucher}, and divide the rest by the {people} people who share "
        "it. What does each of them pay?"
    )
    costs = total([Operation("multiply", (pieces[i], prices[i])) for i in counted])
    return Problem(text, Operation("divide", (Operation("subtract", (costs, voucher)), people)))


def draw_readings(rng: Rng) -> Problem:
    """Draws the log of a gauge with faulty and missing levels: 9 to 12 calls."""
    levels = numbers(rng, int(rng.integers(9, 12)))
    gap, *faulty = pick(rng, range(1, len(levels)), 3)
    lines: list[str] = []
    counted: list[Number] = []
    for i, level in enumerate(levels):
        shown = "none" if i == gap else f"{level} (faulty)" if i in faulty else str(level)
        lines.append(f"{i + 6}:00: level {shown}, battery {99 - i} %")
        if i not in faulty:
            counted.append(counted[-1] if i == gap else level)
    factor, offset = small_numbers(rng, 2)
    text = (
        f"The log of a water gauge:\n{bullets(lines)}\nLeave faulty levels out. Where a level "
        "is none, the last one before it that is not faulty counts once more. Add all these "
        "levels up, and divide by how many they are. Multiply this mean by "
        f"{factor}, then add {offset}. What comes out?"
    )
    mean = Operation("divide", (total(counted), len(counted)))
    return Problem(text, Operation("add", (Operation("multiply", (mean, factor)), offset)))


def draw_notebook(rng: Rng) -> Problem:
    """Draws shuffled definitions, two of which lead nowhere: 7 to 10 calls."""
    names = pick(rng, NAMES, len(NAMES))
    lost, *measured = names[:6]
    values = dict(zip(measured, numbers(rng, 5), strict=True))
    lines = [f"{name} was measured as {value}" for name, value in values.items()]
    lines.append(f"{lost} was not measured; it is taken to be the same as {measured[0]}")
    last, (line, solution) = names[6], _link(rng, names[6], lost, values[measured[0]], values)
    lines.append(line)
    for name in names[7 : 6 + int(rng.integers(7, 11))]:
        line, solution = _link(rng, name, last, solution, values)
        lines.append(line)
        last = name
    for name in names[-2:]:
        line, _ = _link(rng, name, measured[1], values[measured[1]], values)
        lines.append(line)
    text = (
        f"A notebook whose lines are in disorder:\n{bullets(pick(rng, lines, len(lines)))}\n"
        f"What is {last}? Not every line is needed."
    )
    return Problem(text, solution)


def _link(
    rng: Rng, name: str, left: str, value: Operation | Number, values: dict[str, int]
) -> tuple[str, Operation]:
    """Defines a quantity by one operation on another one and a measured one."""
    right = pick(rng, list(values), 1)[0]
    kind = pick(rng, list(LINKS), 1)[0]
    return f"{name} is {LINKS[kind].format(left, right)}", Operation(kind, (value, values[right]))
