"""Fresh tasks from a seed, so that a public set of tasks can never be memorised.

A generator is one function, `generate(seed, count, level)`, that returns rows as they stand in a
task file. The same three arguments give the same rows for ever; another seed gives other ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from env_server.generate import math, orders, relational, typewriter

Generator: TypeAlias = Callable[[int, int, str], list[dict[str, Any]]]

GENERATORS: dict[str, Generator] = {
    math.ENV_ID: math.generate,
    orders.ENV_ID: orders.generate,
    relational.ENV_ID: relational.generate,
    typewriter.ENV_ID: typewriter.generate,
    typewriter.KEYS_ENV_ID: typewriter.generate_keys,
}
"""The generator of each environment that has one."""
