"""Shops whose tables stand in DuckDB, and what an episode has changed in one.

The tables of a shop are shared by all episodes in it, and none writes them: a copy of its own and
an update cost an episode milliseconds, and megabytes. What an episode changes is kept beside them
as the difference, which is also its state: a change that is taken back leaves none.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from env_server.envs.orders_tables import ShopKey, draw_shop
from env_server.envs.world import Database, World

Row = TypeVar("Row", bound=NamedTuple)

SCHEMA = {
    "customers": "id INTEGER NOT NULL, name VARCHAR NOT NULL, email VARCHAR, address VARCHAR",
    "products": (
        "id INTEGER NOT NULL, name VARCHAR NOT NULL, category VARCHAR NOT NULL, "
        "price_cents INTEGER NOT NULL, on_hand INTEGER"
    ),
    "orders": (
        "id INTEGER NOT NULL, customer_id INTEGER NOT NULL, placed_on VARCHAR NOT NULL, "
        "status VARCHAR NOT NULL, address VARCHAR NOT NULL, cancel_reason VARCHAR"
    ),
    "order_lines": (
        "order_id INTEGER NOT NULL, line INTEGER NOT NULL, product_id INTEGER NOT NULL, "
        "quantity INTEGER NOT NULL, unit_cents INTEGER NOT NULL"
    ),
    "shipments": (
        "order_id INTEGER NOT NULL, carrier VARCHAR NOT NULL, tracking VARCHAR, "
        "status VARCHAR NOT NULL, due_on VARCHAR, delivered_on VARCHAR"
    ),
    "refunds": (
        "order_id INTEGER NOT NULL, line INTEGER NOT NULL, cents INTEGER NOT NULL, "
        "made_on VARCHAR NOT NULL"
    ),
    "policies": "category VARCHAR NOT NULL, refund_days INTEGER NOT NULL",
    "today": "day VARCHAR NOT NULL",
}
"""Columns by table. Dates are ISO texts, which order as they should."""

_DATABASE = Database(SCHEMA, draw_shop)


def open_shop(key: ShopKey) -> World:
    """The shop of a key; equal keys share one."""
    return _DATABASE.open(key)


class Changes:
    """What differs from the tables: by table and row, the new values of columns."""

    def __init__(self) -> None:
        """Begins without a difference."""
        self._rows: dict[str, dict[str, dict[str, Any]]] = {}

    def read(self, table: str, key: str, row: Row) -> Row:
        """A row of the tables, as it stands after the changes."""
        new = self._rows.get(table, {}).get(key)
        return row._replace(**new) if new else row

    def write(self, table: str, key: str, row: Row, **values: Any) -> None:
        """Sets columns of a row.

        Args:
            table: Where it stands.
            key: Names the row in its table.
            row: As it stands in the tables, without changes.
            values: By column.
        """
        rows = self._rows.setdefault(table, {})
        new = {**rows.get(key, {}), **values}
        rows[key] = {name: v for name, v in new.items() if v != getattr(row, name)}
        if not rows[key]:
            del rows[key]
        if not rows:
            del self._rows[table]

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON value of its own."""
        return {
            table: {key: dict(new) for key, new in rows.items()}
            for table, rows in self._rows.items()
        }
