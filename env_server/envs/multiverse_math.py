"""Arithmetic in another universe: ten operators with our names and other results.

A model that answers from memory is wrong; one that asks the tools is right. Which universe it is,
the options say. The agent is never shown the coefficients, and they are not in the state either:
that holds a digest. The last digit of a logarithm, power, sine or cosine is the C library's.
"""

from __future__ import annotations

import hashlib
import math
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator
from pydantic_core import PydanticCustomError

from env_server.arguments import canonical_json
from env_server.env import Options, ToolEnv, ToolError, tool
from env_server.envs.expression import Number, Operation, read_expression
from env_server.errors import shown


class Universe(NamedTuple):
    """What the operators of a universe do. The defaults are the reference universe.

    Attributes:
        multiply: m in m * a * b; ours is 1.
        add: c in a + b + c; ours is 0.
        divide: d in d * a / b; ours is 1.
        subtract: s in a - b - s; ours is 0.
        power: p in a ** (b + p), a whole number, so that negative bases work; ours is 0.
        log: g in ln a / ln |base + g|; ours is 0.
        negate: n in n * a; ours is -1.
        angle: f in sin(f * x) and cos(f * x); ours is 1.
        swapped: Whether `sin` gives the cosine and `cos` the sine.
        pi: What `pi` returns.
    """

    multiply: float = 1.1
    add: float = 1.2
    divide: float = 0.5
    subtract: float = 3.0
    power: float = 2.0
    log: float = 1.5
    negate: float = 1.0
    angle: float = 1.0
    swapped: bool = True
    pi: float = math.e


OURS = Universe(1.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0, 1.0, False, math.pi)
"""The universe that everybody knows, to compare with."""

HUNDREDTHS: dict[str, tuple[int, int]] = {
    "multiply": (110, 190),
    "add": (50, 450),
    "divide": (30, 90),
    "subtract": (100, 500),
    "log": (50, 350),
    "negate": (50, 150),
    "angle": (120, 180),
    "pi": (330, 420),
}
"""Bounds of drawn coefficients, in hundredths; none of them holds our universe's value."""


def draw_universe(rng: np.random.Generator) -> Universe:
    """Draws a universe in which every operator differs from ours."""
    drawn = {
        name: int(rng.integers(low, high + 1)) / 100 for name, (low, high) in HUNDREDTHS.items()
    }
    return Universe(**drawn, power=float(rng.integers(1, 4)), swapped=bool(rng.integers(2)))


class MultiverseOptions(Options):
    """Which universe it is."""

    universe: Literal["reference", "episode"] | Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default="reference",
        description=(
            "'reference': the one universe whose coefficients are public. A number: the universe "
            "drawn from it. 'episode': drawn anew in every episode, from its seed."
        ),
    )

    @field_validator("universe", mode="wrap")
    @classmethod
    def _in_one_message(cls, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        try:
            return read(value)
        except ValidationError:
            expected = "'reference', 'episode' or a whole number from 0 to 2**63 - 1"
            raise PydanticCustomError("universe", expected) from None


class MultiverseMath(ToolEnv):
    """Calculate in a universe where the ten operators give other results than ours.

    The state is the universe alone, as a digest: a calculation changes nothing. There is nothing
    to win without a task.
    """

    OPTIONS = MultiverseOptions
    options: MultiverseOptions

    def _begin(self) -> None:
        choice = self.options.universe
        if choice == "reference":
            self.universe = Universe()
        elif choice == "episode":
            self.universe = draw_universe(self.np_random)
        else:
            self.universe = draw_universe(np.random.default_rng(choice))
        coefficients = canonical_json(list(self.universe))
        self._digest = hashlib.sha256(coefficients.encode()).hexdigest()
        self._state_hash = super().state_hash()

    def state(self) -> dict[str, str]:
        """The digest of the universe's coefficients."""
        return {"universe": self._digest}

    def state_hash(self) -> bytes:
        """SHA-256 over the state (32 bytes), which no call changes."""
        return self._state_hash

    def reference(self, expression: str) -> float:
        """Computes nested calls of the operators in this universe.

        Args:
            expression: For instance "divide(multiply(pi(), 15), 180)": the ten operators, and
                numbers with at most one minus sign before each.

        Raises:
            ValueError: It is not of this form, is too long or too deep, or has no value.
        """
        return self._value(read_expression(expression, ARITIES))

    def _value(self, node: Operation | Number) -> float:
        if not isinstance(node, Operation):
            return float(node)
        operands = [self._value(operand) for operand in node.operands]
        try:
            return float(self.TOOLS[node.name].method(self, *operands))
        except ToolError as e:
            raise ValueError(f"{shown(str(node))}: {e}") from None

    @tool
    def multiply(self, a: float, b: float) -> float:
        """Multiplies two numbers by the rules of this universe.

        Multiplication here is not the one you know: take the result from this tool.

        Args:
            a: First factor.
            b: Second factor.
        """
        return _finite("multiply", self.universe.multiply * a * b)

    @tool
    def add(self, a: float, b: float) -> float:
        """Adds two numbers by the rules of this universe.

        Addition here is not the one you know: take the result from this tool.

        Args:
            a: First summand.
            b: Second summand.
        """
        return _finite("add", a + b + self.universe.add)

    @tool
    def divide(self, a: float, b: float) -> float:
        """Divides a by b by the rules of this universe.

        Division here is not the one you know: take the result from this tool.

        Args:
            a: The number that is divided.
            b: The number to divide by; not 0.
        """
        if b == 0:
            raise ToolError("divide needs a divisor b other than 0", "divide")
        return _finite("divide", self.universe.divide * a / b)

    @tool
    def subtract(self, a: float, b: float) -> float:
        """Subtracts b from a by the rules of this universe.

        Subtraction here is not the one you know: take the result from this tool.

        Args:
            a: The number to subtract from.
            b: The number that is subtracted.
        """
        return _finite("subtract", a - b - self.universe.subtract)

    @tool
    def power(self, a: float, b: float) -> float:
        """Raises a to the power of b by the rules of this universe.

        Powers here are not the ones you know: take the result from this tool.

        Args:
            a: The base.
            b: The exponent.
        """
        try:
            return _finite("power", math.pow(a, b + self.universe.power))
        except ValueError:
            message = f"power has no real value for a = {a!r}, b = {b!r}"
            raise ToolError(message, "power") from None
        except OverflowError:
            raise _too_large("power") from None

    @tool
    def log(self, a: float, base: float) -> float:
        """Takes the logarithm of a to a base by the rules of this universe.

        Logarithms here are not the ones you know: take the result from this tool.

        Args:
            a: The number; greater than 0.
            base: The base. A few bases have no logarithm here.
        """
        if a <= 0:
            raise ToolError(f"log needs a greater than 0, got {a!r}", "log")
        shifted = abs(base + self.universe.log)
        if shifted in (0, 1):
            raise ToolError(f"log has no value for the base {base!r}", "log")
        return _finite("log", math.log(a) / math.log(shifted))

    @tool
    def negate(self, a: float) -> float:
        """Negates a number by the rules of this universe.

        Negation here is not the one you know: take the result from this tool.

        Args:
            a: The number, with its own sign.
        """
        return _finite("negate", self.universe.negate * a)

    @tool
    def sin(self, radians: float) -> float:
        """Takes the sine of an angle by the rules of this universe.

        The sine here is not the one you know: take the result from this tool.

        Args:
            radians: The angle.
        """
        angle = _finite("sin", self.universe.angle * radians)
        return _finite("sin", math.cos(angle) if self.universe.swapped else math.sin(angle))

    @tool
    def cos(self, radians: float) -> float:
        """Takes the cosine of an angle by the rules of this universe.

        The cosine here is not the one you know: take the result from this tool.

        Args:
            radians: The angle.
        """
        angle = _finite("cos", self.universe.angle * radians)
        return _finite("cos", math.sin(angle) if self.universe.swapped else math.cos(angle))

    @tool
    def pi(self) -> float:
        """Gives the number pi as it is in this universe.

        It is not the pi that you know: take it from this tool.
        """
        return self.universe.pi


ARITIES = {name: len(tool.required) for name, tool in MultiverseMath.TOOLS.items()}
"""How many operands each operator takes."""


def _finite(name: str, result: float) -> float:
    """Refuses an infinity, and takes the sign off a zero: JSON readers disagree about -0.0."""
    if not math.isfinite(result):
        raise _too_large(name)
    return result + 0.0


def _too_large(name: str) -> ToolError:
    return ToolError(f"the result of {name} is beyond ±1.8e308", name)
