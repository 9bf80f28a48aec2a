"""Nested calls as data, for references that a task's author writes: "multiply(add(1, 2), 7)".

Text is read with Python's own parser and never executed. What the calls mean, it does not know.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from env_server.errors import shown

MAX_CHARACTERS = 4_000
MAX_NESTING = 32

Number: TypeAlias = int | float


class Operation(NamedTuple):
    """One call.

    Attributes:
        name: What is called.
        operands: Numbers as they were written, and further calls.
    """

    name: str
    operands: tuple[Operation | Number, ...] = ()

    def __str__(self) -> str:
        """The call as text that `read_expression` reads."""
        return f"{self.name}({', '.join(str(operand) for operand in self.operands)})"


def read_expression(text: str, arities: Mapping[str, int]) -> Operation | Number:
    """Reads nested calls on numbers; a number may have one minus sign.

    Args:
        text: At most 4,000 characters, with at most 32 calls within calls.
        arities: What may be called, and with how many operands.

    Raises:
        ValueError: It is anything else.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"expected at most {MAX_CHARACTERS:,} characters, got {len(text):,}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    found = None if tree is None else _read_node(tree, arities, MAX_NESTING)
    if found is None:
        names = ", ".join(f"{name}/{arity}" for name, arity in arities.items())
        wanted = f"calls of {names}, at most {MAX_NESTING} deep, on finite numbers"
        raise ValueError(f"expected {wanted}; got {shown(text)}")
    return found


def _read_node(node: ast.expr, arities: Mapping[str, int], room: int) -> Operation | Number | None:
    match node:
        case ast.Constant(value=value):
            return _read_number(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            number = _read_number(value)
            return None if number is None else -number
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if room > 0:
            operands = [_read_node(arg, arities, room - 1) for arg in args]
            read = tuple(operand for operand in operands if operand is not None)
            return Operation(name, read) if len(args) == len(read) == arities.get(name) else None
    return None


def _read_number(value: object) -> Number | None:
    """The number, where it is one: True is none, nor is what no double can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None
