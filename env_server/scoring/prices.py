"""Prices of tokens: a dated table that comes with Railgym, and tables of the user's.

A table is a TOML file; `prices.toml` beside this module is one, and says what each field means.
What is in no table has no price: its cost is not known, which is another thing than 0. Sums are
exact, and only the result is a float.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from env_server.scoring.claims import BUCKETS, add, read_call
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

    def names(self, usage: ModelUsage) -> bool:
        """Whether it is of the model."""
        if not fnmatchcase(usage.provider.lower(), self.provider.lower()):
            return False
        model, pattern = usage.model.lower(), self.model.lower()
        return any(fnmatchcase(name, pattern) for name in (model, _SNAPSHOT.sub("", model)))

    def holds_for_some(self, usage: ModelUsage) -> bool:
        """Whether calls may be among those that were made whose prompts it is for."""
        least, most = self._prompts
        return least <= usage.largest_prompt and usage.smallest_prompt <= most

    def holds_for_all(self, usage: ModelUsage) -> bool:
        """Whether it is for the prompts of all calls."""
        least, most = self._prompts
        return least <= usage.smallest_prompt and usage.largest_prompt <= most

    def lacks(self, usage: ModelUsage) -> list[str]:
        """Kinds of tokens that were used, and of which it does not know the price."""
        return [b for b in BUCKETS if getattr(usage, b) and getattr(self, b) is None]

    def cost(self, usage: ModelUsage) -> Decimal | None:
        """The cost in USD; None where something was used whose price is not known."""
        if self.lacks(usage):
            return None
        parts = (getattr(usage, bucket) * (getattr(self, bucket) or 0) for bucket in BUCKETS)
        return sum(parts, Decimal(0)) / _MILLION

    @property
    def _prompts(self) -> tuple[float, float]:
        """Tokens of the smallest and the largest prompt that it is for."""
        least = 0 if self.prompt_above is None else self.prompt_above + 1
        return least, math.inf if self.prompt_up_to is None else self.prompt_up_to


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

    def kept(self) -> list[dict[str, Any]]:
        """The user's tables as JSON, for `prices_kept`."""
        own = [table for table in self._tables if table is not bundled()]
        return [table.model_dump(mode="json", exclude_none=True) for table in own]

    def cost(self, models: Iterable[ModelUsage], calls: Sequence[ModelUsage] = ()) -> Cost:
        """What the models of an episode cost together.

        Args:
            models: What was used of each.
            calls: The same call by call, where that is at hand: it is needed where prices depend
                on the length of the prompt and calls of one model fall under several of them.

        Returns:
            `UNKNOWN` without a model, where one has no price, and where it is not known what one
            used.
        """
        found: list[tuple[Table, Decimal]] = []
        for usage in models:
            whole = self._priced(usage)
            own = [call for call in calls if call[:2] == usage[:2]]
            parts = [self._priced(call) for call in own] if whole is None else [whole]
            known = [part for part in parts if part is not None]
            if not parts or len(known) < len(parts):
                return UNKNOWN
            found += known
        if not found:
            return UNKNOWN
        total = sum((cost for _, cost in found), Decimal(0))
        return Cost(float(total), ", ".join(dict.fromkeys(str(table) for table, _ in found)))

    def cost_of(self, claim: Mapping[str, Any]) -> float | None:
        """What the model call of a claim cost, in USD; None where that is not known."""
        call = read_call(claim)
        return None if call is None else self.cost([call.usage]).usd

    def gaps(self, usages: Iterable[ModelUsage]) -> list[str]:
        """Says why there is no cost: a line for each model.

        Args:
            usages: Of episodes without a cost.
        """
        by_model: defaultdict[tuple[str, str], list[ModelUsage]] = defaultdict(list)
        for usage in usages:
            by_model[usage.provider, usage.model].append(usage)
        found = (self._gap(add(members)) for members in by_model.values())
        return [gap for gap in found if gap is not None]

    def idle(self, usages: Collection[ModelUsage]) -> list[str]:
        """Names the user's tables that have no price for any of these models."""
        return [
            str(table)
            for table in self._tables
            if table is not bundled()
            and not any(price.names(usage) for price in table.price for usage in usages)
        ]

    def _gap(self, usage: ModelUsage) -> str | None:
        if not (usage.unmetered or any(getattr(usage, bucket) for bucket in BUCKETS)):
            return None
        name = f"{usage.provider or 'no provider'}/{usage.model or 'no model'}"
        if not any(price.names(usage) for table in self._tables for price in table.price):
            return f"no price for {name}"
        if usage.unmetered:
            return f"calls of {name} that do not say what they used: {usage.unmetered}"
        _, price = self._find(usage)
        if price is None:
            prompts = f"{usage.smallest_prompt:,} to {usage.largest_prompt:,} tokens"
            return f"no one price for {name} with prompts of {prompts}"
        lacking = ", ".join(price.lacks(usage))
        return f"no {lacking} price for {name}" if lacking else None

    def _priced(self, usage: ModelUsage) -> tuple[Table, Decimal] | None:
        table, price = self._find(usage)
        if table is None or price is None or usage.unmetered:
            return None
        cost = price.cost(usage)
        return None if cost is None else (table, cost)

    def _find(self, usage: ModelUsage) -> tuple[Table, Price] | tuple[None, None]:
        """The price of all calls; none where that of some of them is another one."""
        for table in self._tables:
            for price in table.price:
                if price.names(usage) and price.holds_for_some(usage):
                    return (table, price) if price.holds_for_all(usage) else (None, None)
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
        wrong = (f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in e.errors())
        raise PricesError(f"{path}: {'; '.join(wrong)}") from None
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


def prices_kept(tables: Iterable[Any]) -> Prices:
    """The tables that `Prices.kept` gave, and then the one that comes with Railgym.

    Raises:
        PricesError: One of them is none.
    """
    try:
        return Prices([*(Table.model_validate(table) for table in tables), bundled()])
    except ValidationError as e:
        raise PricesError(f"expected price tables as a run keeps them: {e}") from None
