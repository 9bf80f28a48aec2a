"""Price tables: those that the user names, those that a run was given, and what they lack."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from env_server.cli.asked import CONFIG
from env_server.cli.exits import failing_on
from env_server.errors import printable

if TYPE_CHECKING:
    from env_server.scoring.prices import Prices
    from env_server.scoring.score import EpisodeScore

PRICES = "prices"
"""What config.json calls the tables that a run was given."""


def open_prices(paths: Iterable[Path]) -> Prices:
    """The user's price tables, and the one that comes with Railgym.

    Raises:
        Failure: One of them cannot be read.
    """
    from env_server.scoring.prices import PricesError, prices_with

    with failing_on(PricesError):
        return prices_with(paths)


def prices_of(path: Path) -> Prices:
    """The price tables that a run was given, and the one that comes with Railgym.

    Args:
        path: Folder of the run, or its log; of anything else there is only the last one.

    Raises:
        Failure: They cannot be read any more.
    """
    from env_server.scoring.prices import PricesError, prices_kept

    folder = path.parent if path.name == "log" else path
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        kept = list(config[PRICES]) if "run" in config else []
    except (OSError, ValueError, KeyError, TypeError):
        kept = []  # no run's, or that of a version that did not keep them
    with failing_on(PricesError):
        return prices_kept(kept)


def price_remarks(scores: Iterable[EpisodeScore], prices: Prices) -> list[str]:
    """Says once for each model why it has no cost, and which of the user's tables are of no use."""
    every = list(scores)
    unknown = [usage for s in every if "cost_usd" not in s.metrics for usage in s.models]
    used = [usage for score in every for usage in score.models]
    idle = prices.idle(used) if used else []
    lines = [f"Cost unknown: {gap}" for gap in prices.gaps(unknown)]
    lines += [f"Price table {table}: no price in it is of a model that played" for table in idle]
    return [printable(line) for line in lines]
