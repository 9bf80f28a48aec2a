"""Prices of tokens: a dated table that comes with Railgym, and tables of the user's.

A table is a TOML file; `prices.toml` beside this module is one, and says what each field means.
What is in no table has no price: its cost is not known, which is another thing than 0. Sums are
exact, and only the result is a float.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from env_server.scoring.claims import BUCKETS, read_call
from railgym.scores import ModelUsage

BUNDLED = Path(__file__).with_name("prices.toml")
NO_SOURCE = "none"

_MILLION = 1_000_000
_SNAPSHOT = re.compile(r"-20\d\d-?\d\d-?\d\d$")

Usd = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0)]


class PricesError(ValueError):
    """A price table that cannot be read: it says where and why."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Price(_Strict):
    """What a model costs: USD for a million tokens of each kind; None: not known."""

    provider: str
    model: str
    input: Usd | None = None
    cache_read: Usd | None = None
    cache_write_5m: Usd | None = None
    cache_write_1h: Usd | None = None
    output: Usd | None = None
    prompt_up_to: Tokens | None = None
    prompt_above: Tokens | None = None

    def fits(self, usage: ModelUsage) -> bool:
        """Whether it holds for all that was used of a model."""
        model = usage.model.lower()
        undated = _SNAPSHOT.sub("", model)
        named = fnmatchcase(model, self.model) or fnmatchcase(undated, self.model)
        if self.provider != usage.provider.lower() or not named:
            return False
        if self.prompt_up_to is not None and usage.largest_prompt > self.prompt_up_to:
            return False
        return self.prompt_above is None or usage.smallest_prompt > self.prompt_above

    def cost(self, usage: ModelUsage) -> Decimal | None:
        """The cost in USD; None where something was used whose price is not known."""
        total = Decimal(0)
        for bucket in BUCKETS:
            tokens, price = getattr(usage, bucket), getattr(self, bucket)
            if tokens and price is None:
                return None
            total += tokens * (price or 0)
        return total / _MILLION


class Table(_Strict):
    """A price table; of several prices that fit, the first counts."""

    name: str
    date: date
    source: str
    price: tuple[Price, ...]

    def __str__(self) -> str:
        """Name and date: what stands beside a cost."""
        return f"{self.name} {self.date}"


class Cost(NamedTuple):
    """What models cost.

    Attributes:
        usd: None: not known.
        source: The tables that say so, by name and date; "none" where it is not known.
    """

    usd: float | None
    source: str


UNKNOWN = Cost(None, NO_SOURCE)


class Prices:
    """Price tables, in the order in which they are asked."""

    def __init__(self, tables: Sequence[Table]) -> None:
        """Takes the tables."""
        self._tables = tables

    def cost(self, models: Iterable[ModelUsage]) -> Cost:
        """What the models of an episode cost together.

        Returns:
            `UNKNOWN` without a model, where one has no price, and where it is not known what one
            used.
        """
        total, sources = Decimal(0), []
        for usage in models:
            table, price = self._find(usage)
            cost = price.cost(usage) if price and not usage.unmetered else None
            if cost is None:
                return UNKNOWN
            total += cost
            sources.append(str(table))
        return Cost(float(total), ", ".join(dict.fromkeys(sources))) if sources else UNKNOWN

    def cost_of(self, claim: Mapping[str, Any]) -> float | None:
        """What the model call of a claim cost, in USD; None where that is not known."""
        call = read_call(claim)
        return None if call is None else self.cost([call.usage]).usd

    def _find(self, usage: ModelUsage) -> tuple[Table, Price] | tuple[None, None]:
        for table in self._tables:
            for price in table.price:
                if price.fits(usage):
                    return table, price
        return None, None


def read_table(path: Path) -> Table:
    """Reads a price table.

    Raises:
        PricesError: It cannot be read, or is none.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        return Table.model_validate(content)
    except OSError as e:
        raise PricesError(f"{path}: {e.strerror}") from None
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise PricesError(f"{path}: {where}: {first['msg']}") from None
    except ValueError as e:
        raise PricesError(f"{path}: expected TOML in UTF-8: {e}") from None


@cache
def bundled() -> Table:
    """The table that comes with Railgym."""
    return read_table(BUNDLED)


def prices_with(paths: Iterable[Path] = ()) -> Prices:
    """The user's tables, the latest first, and then the one that comes with Railgym.

    Raises:
        PricesError: One of them cannot be read, or is none.
    """
    own = [read_table(path) for path in paths]
    return Prices([*reversed(own), bundled()])
