"""Look things up in tables of people, places and food.

Ids and names are different things: a tool that takes an id is no use before a search has found
it. Nothing can be changed here, so the state is the world that the episode began in.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from env_server.env import Options, ToolEnv, ToolError, tool
from env_server.envs.world import World, in_one_message, open_world
from env_server.envs.world_tables import MAX_USERS, MIN_USERS, Food, Location, User

PAGE = 20
"""Most records that a search returns."""

MAX_ID = 2**31 - 1

_USERS = "SELECT id, name FROM users ORDER BY id"
_LOCATIONS = "SELECT id, city FROM locations ORDER BY id"
_FOODS = "SELECT id, name FROM foods ORDER BY id"
_USER = "SELECT id, name, email, location_id, favorite_color FROM users WHERE id = ?"
_LOCATION = "SELECT id, city, local_time, weather FROM locations WHERE id = ?"
_FOOD = "SELECT id, name, calories, allergens FROM foods WHERE id = ?"
_FAVORITES = "SELECT food_id FROM favorite_foods WHERE user_id = ? ORDER BY rank"
_SIGNED_IN = "SELECT user_id FROM signed_in ORDER BY user_id"


class Named(TypedDict):
    """A user or a food that a search found."""

    id: int
    name: str


class Placed(TypedDict):
    """A location that a search found."""

    id: int
    city: str


class RelationalOptions(Options):
    """Which world it is."""

    world: Literal["reference", "episode"] | Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default="reference",
        description=(
            "'reference': the small world that is public. A number: the world drawn from it. "
            "'episode': drawn anew in every episode, from its seed."
        ),
    )
    users: int = Field(
        default=40,
        ge=MIN_USERS,
        le=MAX_USERS,
        description="Users in a drawn world. The reference world always has six.",
    )

    _world_in_one_message = in_one_message(
        "world", "'reference', 'episode' or a whole number from 0 to 2**63 - 1"
    )


class Relational(ToolEnv):
    """Answer questions about users, the places they live in and the food they like.

    Users, locations and foods have an id and a name each, and the ids of one kind mean nothing
    to another. A tool returns null for what is not on record. There is nothing to win without a
    task.
    """

    OPTIONS = RelationalOptions
    options: RelationalOptions

    def _begin(self) -> None:
        choice = self.options.world
        if choice == "episode":
            choice = int(self.np_random.integers(2**63))
        self._world: World = open_world(choice, self.options.users)

    def state(self) -> dict[str, Any]:
        """The tables, each ordered by its ids."""
        return self._world.state()

    def state_hash(self) -> bytes:
        """SHA-256 over the tables (32 bytes), which no call changes."""
        return self._world.state_hash

    def reference(self, expression: str) -> Any:
        """Computes a value by SQL over the tables.

        Args:
            expression: One SELECT with one column and a total order.

        Returns:
            The value of a single row, or a list of the values of several.

        Raises:
            ValueError: It is no such SELECT over the world's tables, or gives no JSON values.
        """
        return self._world.evaluate(expression)

    @tool
    def get_user_name(self, user_id: int) -> str:
        """Tells what a user is called. Several users may have one name.

        Args:
            user_id: Id of the user.
        """
        return self._user(user_id).name

    @tool
    def list_user_ids(self) -> list[int]:
        """Lists the ids of all users, in ascending order."""
        return [user_id for user_id, _ in self._world.rows(_USERS)]

    @tool
    def find_users_by_name(self, name: str) -> list[Named]:
        """Ranks users by how much their names resemble a text, best first.

        At most 20 users are returned, whether or not their names are alike: check the names.

        Args:
            name: A name or a part of one; capitals, spaces and punctuation do not matter.
        """
        return [Named(id=row[0], name=row[1]) for row in self._search(_USERS, name)]

    @tool
    def find_locations_by_name(self, city: str) -> list[Placed]:
        """Ranks locations by how much their cities resemble a text, best first.

        At most 20 locations are returned, whether or not their cities are alike: check them.

        Args:
            city: A city or a part of its name; capitals, spaces and punctuation do not matter.
        """
        return [Placed(id=row[0], city=row[1]) for row in self._search(_LOCATIONS, city)]

    @tool
    def find_foods_by_name(self, food: str) -> list[Named]:
        """Ranks foods by how much their names resemble a text, best first.

        At most 20 foods are returned, whether or not their names are alike: check the names.

        Args:
            food: A food or a part of its name; capitals, spaces and punctuation do not matter.
        """
        return [Named(id=row[0], name=row[1]) for row in self._search(_FOODS, food)]

    @tool
    def get_user_email(self, user_id: int) -> str | None:
        """Tells the email address of a user; null where none is on record.

        Args:
            user_id: Id of the user.
        """
        return self._user(user_id).email

    @tool
    def get_user_location(self, user_id: int) -> int | None:
        """Tells where a user lives, as the id of a location; null where that is not on record.

        Args:
            user_id: Id of the user.
        """
        return self._user(user_id).location_id

    @tool
    def get_user_favorite_color(self, user_id: int) -> str | None:
        """Tells the favorite color of a user; null where none is on record.

        Args:
            user_id: Id of the user.
        """
        return self._user(user_id).favorite_color

    @tool
    def get_user_favorite_foods(self, user_id: int) -> list[int]:
        """Lists the favorite foods of a user as ids, the dearest first; empty where none is known.

        Args:
            user_id: Id of the user.
        """
        self._user(user_id)
        return [food_id for (food_id,) in self._world.rows(_FAVORITES, user_id)]

    @tool
    def get_weather_at_location(self, location_id: int) -> str | None:
        """Tells the weather at a location right now; null where it is not on record.

        Args:
            location_id: Id of the location.
        """
        return self._location(location_id).weather

    @tool
    def get_city_for_location(self, location_id: int) -> str:
        """Tells which city a location is.

        Args:
            location_id: Id of the location.
        """
        return self._location(location_id).city

    @tool
    def get_current_time_for_location(self, location_id: int) -> str | None:
        """Tells the local date and time at a location; null where it is not on record.

        Args:
            location_id: Id of the location.
        """
        return self._location(location_id).local_time

    @tool
    def get_current_weather_for_location(self, location_id: int) -> str | None:
        """Tells the weather at a location right now, as get_weather_at_location does.

        Args:
            location_id: Id of the location.
        """
        return self._location(location_id).weather

    @tool
    def get_food_name(self, food_id: int) -> str:
        """Tells what a food is called.

        Args:
            food_id: Id of the food.
        """
        return self._food(food_id).name

    @tool
    def get_food_calories(self, food_id: int) -> int | None:
        """Tells how many calories a serving of a food has; null where that is not on record.

        Args:
            food_id: Id of the food.
        """
        return self._food(food_id).calories

    @tool
    def get_food_allergic_ingredients(self, food_id: int) -> list[str] | None:
        """Lists what a food holds that people are allergic to.

        The list is empty where it holds nothing of the kind, and null where that is not on record.

        Args:
            food_id: Id of the food.
        """
        return self._food(food_id).allergens

    @tool
    def get_current_user_id(self) -> int:
        """Tells the id of the user who is signed in: the current user."""
        [(user_id,)] = self._world.rows(_SIGNED_IN)
        return int(user_id)

    def _user(self, user_id: int) -> User:
        return User(*self._row(_USER, "user", user_id))

    def _location(self, location_id: int) -> Location:
        return Location(*self._row(_LOCATION, "location", location_id))

    def _food(self, food_id: int) -> Food:
        return Food(*self._row(_FOOD, "food", food_id))

    def _row(self, sql: str, kind: str, record_id: int) -> tuple[Any, ...]:
        rows = self._world.rows(sql, record_id) if 0 <= record_id <= MAX_ID else []
        if not rows:
            shown = str(record_id)[:80]
            raise ToolError(f"no {kind} has the id {shown}; find_{kind}s_by_name finds ids")
        return rows[0]

    def _search(self, sql: str, text: str) -> list[tuple[Any, ...]]:
        """Ranks ids and names by the Jaccard similarity of their letters; equal ones by id."""
        wanted = _letters(text)
        ranked = sorted(self._world.rows(sql), key=lambda row: -_alike(wanted, _letters(row[1])))
        return ranked[:PAGE]


@lru_cache(maxsize=4_096)
def _letters(text: str) -> frozenset[str]:
    return frozenset(filter(str.isalnum, text.casefold()))


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0
