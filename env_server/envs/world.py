"""Worlds: sets of tables that many episodes read and none writes.

Sessions in equal worlds share one `World`, which keeps the answers of its reads. The tables
themselves stand in DuckDB, each world in a database of its own. An environment that changes
something keeps its changes beside the world. Worlds know nothing of tools.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property, lru_cache, partial
from threading import Lock
from typing import Any, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

import duckdb
from pydantic import ValidationError, ValidatorFunctionWrapHandler, field_validator
from pydantic_core import PydanticCustomError

from env_server.arguments import canonical_json
from env_server.envs.world_tables import Tables, draw_tables, reference_tables

MAX_WORLDS = 256
"""Worlds whose tables are loaded, and worlds that are kept for the next session."""

MAX_ANSWERS = 512
"""Reads whose answers a world keeps."""

Rows: TypeAlias = list[tuple[Any, ...]]
Name = TypeVar("Name", bound=Hashable)

_CONFIG: dict[str, Any] = {
    "threads": 1,
    "async_threads": 0,
    "enable_external_access": False,
    "python_enable_replacements": False,
    "lock_configuration": True,
}

# No primary keys: their indexes cost 3 MB a world, and no table has more than 1,200 rows.
_SCHEMA = {
    "users": (
        "id INTEGER NOT NULL, name VARCHAR NOT NULL, email VARCHAR, location_id INTEGER, "
        "favorite_color VARCHAR"
    ),
    "favorite_foods": "user_id INTEGER NOT NULL, rank INTEGER NOT NULL, food_id INTEGER NOT NULL",
    "locations": "id INTEGER NOT NULL, city VARCHAR NOT NULL, local_time VARCHAR, weather VARCHAR",
    "foods": "id INTEGER NOT NULL, name VARCHAR NOT NULL, calories INTEGER, allergens VARCHAR[]",
    "signed_in": "user_id INTEGER NOT NULL",
}


def in_one_message(field: str, expected: str) -> Any:
    """A validator of Pydantic for an option of several types, of which it would name each.

    Args:
        field: The option.
        expected: What it may be, in words.
    """

    def check(cls: type, value: Any, read: ValidatorFunctionWrapHandler) -> Any:
        try:
            return read(value)
        except ValidationError:
            raise PydanticCustomError(field, expected) from None

    return field_validator(field, mode="wrap")(classmethod(check))


def _storable(value: object) -> object:
    """A value as DuckDB takes it: lone surrogates, which no table holds, become U+FFFD."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


class Key(NamedTuple):
    """What names a world: what it is drawn from (None: the reference world) and its size."""

    seed: int | None
    users: int


class Database(Generic[Name]):
    """The DuckDB instance that holds the tables of worlds of one kind. For many threads.

    Worlds that were not read for long are dropped, and loaded again when they are: their tables
    follow from their keys.
    """

    def __init__(self, schema: Mapping[str, str], draw: Callable[[Name], Any]) -> None:
        """Makes an instance that opens with its first read.

        Args:
            schema: Columns by table, as SQL.
            draw: Makes the tables of a world from its key: an object with a list of rows for each.
        """
        self.schema = schema
        self.check_select = lru_cache(maxsize=4_096)(self._check_select)
        self.open = lru_cache(maxsize=MAX_WORLDS)(self._open)
        self._draw = draw
        self._lock = Lock()
        self._names: OrderedDict[Name, str] = OrderedDict()
        self._numbers = itertools.count(1)
        self._used: Name | None = None

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(":memory:", config=_CONFIG)

    def read(self, key: Name, sql: str, *parameters: object) -> Rows:
        """Runs a query on the tables of one world, where it can write nothing.

        Raises:
            duckdb.Error: The query fails.
        """
        with self._lock:
            self._use(key)
            self._connection.execute("BEGIN TRANSACTION READ ONLY")
            try:
                return self._connection.execute(sql, [_storable(p) for p in parameters]).fetchall()
            finally:
                self._connection.execute("ROLLBACK")

    def _open(self, key: Name) -> World:
        return World(self, key)

    def _check_select(self, sql: str) -> None:
        """Makes sure that SQL is one SELECT over the tables of a world; asked once for each text.

        Raises:
            ValueError: It is something else.
            duckdb.Error: It cannot be parsed.
        """
        with self._lock:
            statements = self._connection.extract_statements(sql)
            kinds = [statement.type.name for statement in statements]
            if kinds != ["SELECT"]:
                raise ValueError(f"expected one SELECT, got {', '.join(kinds) or 'nothing'}")
            names = self._connection.get_table_names(sql, qualified=True)
        foreign = {name.partition(" AS ")[0] for name in names} - set(self.schema)
        if foreign:
            expected, got = ", ".join(self.schema), ", ".join(sorted(foreign))
            raise ValueError(f"expected the tables {expected}; got {got}")

    def _use(self, key: Name) -> None:
        if key not in self._names:
            self._load(key)
        self._names.move_to_end(key)
        if key != self._used:
            self._connection.execute(f"USE {self._names[key]}")
            self._used = key
        if len(self._names) > MAX_WORLDS:
            _, name = self._names.popitem(last=False)
            self._connection.execute(f"DETACH {name}")

    def _load(self, key: Name) -> None:
        tables = self._draw(key)
        name = f"world_{next(self._numbers)}"
        self._connection.execute(f"ATTACH ':memory:' AS {name} (BLOCK_SIZE 16384)")
        self._connection.execute("BEGIN TRANSACTION")
        for table, columns in self.schema.items():
            self._connection.execute(f"CREATE TABLE {name}.{table} ({columns})")
            if rows := getattr(tables, table):
                self._fill(f"{name}.{table}", rows)
        self._connection.execute("COMMIT")
        self._names[key] = name

    def _fill(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Writes rows column by column, which takes a tenth of the time of row by row."""
        places = ", ".join("unnest(?)" for _ in rows[0])
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._connection.execute(f"INSERT INTO {table} SELECT {places}", columns)


class World:
    """One set of tables, which never changes.

    Attributes:
        rows: Runs SQL with parameters and returns the rows, which the caller must not change.
            The answers to the latest 512 reads are kept.
    """

    def __init__(self, database: Database[Any], key: Hashable) -> None:
        """Makes a world whose tables are loaded with the first read."""
        self._database = database
        self._read: Callable[..., Rows] = partial(database.read, key)
        self.rows: Callable[..., Rows] = lru_cache(maxsize=MAX_ANSWERS)(self._read)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The world itself: there is nothing in it that a copy could change."""
        return self

    def state(self) -> dict[str, Any]:
        """The tables: by name, a list of rows in the order of their ids."""
        reads = {
            table: f"SELECT {table} FROM {table} ORDER BY ALL" for table in self._database.schema
        }
        return {table: [row for (row,) in self._read(sql)] for table, sql in reads.items()}

    @cached_property
    def state_hash(self) -> bytes:
        """SHA-256 over the tables in canonical form (32 bytes)."""
        return hashlib.sha256(canonical_json(self.state()).encode()).digest()

    def evaluate(self, sql: str) -> Any:
        """Computes a value that a task's author asks for; see `Relational.reference`.

        Raises:
            ValueError: It cannot be computed.
        """
        values = self.column(sql)
        if not values:
            raise ValueError(f"{sql!r} gives 0 rows of 1; expected rows of one")
        return values[0] if len(values) == 1 else values

    def column(self, sql: str) -> list[Any]:
        """The values of a SELECT of one column that a task's author asks for.

        Raises:
            ValueError: It is no such SELECT over the world's tables, or gives no JSON values.
        """
        try:
            self._database.check_select(sql)
            rows = self.rows(sql)
        except duckdb.Error as e:
            raise ValueError(f"{sql!r} fails: {e}") from None
        if rows and len(rows[0]) != 1:
            raise ValueError(f"{sql!r} gives {len(rows)} rows of {len(rows[0])}; expected one")
        return [_json(value) for (value,) in rows]


def _json(value: Any) -> Any:
    """Checks that a value of a query is JSON; copies a list."""
    if isinstance(value, list):
        return [_json(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"expected a JSON value, got {type(value).__name__} {value}: cast it in SQL")


def _tables(key: Key) -> Tables:
    return reference_tables() if key.seed is None else draw_tables(key.seed, key.users)


_DATABASE = Database(_SCHEMA, _tables)


def open_world(choice: Literal["reference"] | int, users: int) -> World:
    """The reference world, or the one that is drawn from a number; equal ones are shared.

    Args:
        choice: "reference", or a number of 0 or more.
        users: How many a drawn world has.
    """
    return _DATABASE.open(Key(None, 0) if choice == "reference" else Key(choice, users))
