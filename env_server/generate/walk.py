"""The way to an answer in a world of Relational, played while it is written down.

A question is made by walking to its answer: what the walk called is the gold solution. No call
is made twice, and one search serves for all users that it shows, so that no shorter way is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from env_server.envs.relational import Relational
from env_server.envs.world_tables import Food, Location, Tables, User, draw_tables
from env_server.generate.steps import Draw, Found, Steps, Unfit

AnswerKind: TypeAlias = Literal["text", "number", "time", "list", "yes_no"]


class Question(NamedTuple):
    """A question about a world.

    Attributes:
        text: The question; how to answer it is added later.
        kind: What the answer is.
        expected: SQL for it.
        evidence: Tools that must be called, any of each group, and how often.
        may_be_unknown: The SQL says 'unknown' where data are missing.
    """

    text: str
    kind: AnswerKind
    expected: str
    evidence: Sequence[tuple[Sequence[str], int]]
    may_be_unknown: bool = False


class Walk(Steps):
    """Plays a world and keeps its calls."""

    def __init__(self, env: Relational) -> None:
        """Begins in a world that was just reset."""
        super().__init__(env)
        self._search = env.find_users_by_name

    def find_location(self, location: Location) -> Found:
        """Comes to the id of a location, whose city is no other's."""
        hits = self.ask("find_locations_by_name", city=location.city)
        return hits.part([hit["id"] for hit in hits.value].index(location.id), "id")

    def find_food(self, food: Food) -> Found:
        """Comes to the id of a food, whose name is no other's."""
        hits = self.ask("find_foods_by_name", food=food.name)
        return hits.part([hit["id"] for hit in hits.value].index(food.id), "id")

    def find_user(self, user: User) -> Found:
        """Comes to the id of one user."""
        return self.find_users([user])[0]

    def find_users(self, users: Sequence[User]) -> list[Found]:
        """Comes to the ids of users, with the fewest searches by their names or by nothing."""
        texts = sorted({user.name for user in users})
        for count in range(1, len(texts) + 1):
            for searched in combinations([*texts, ""], count):
                shown: dict[int, tuple[str, int]] = {}
                for text in searched:
                    hits = self._search(text)
                    shown.update({hit["id"]: (text, place) for place, hit in enumerate(hits)})
                if all(user.id in shown for user in users):
                    return [self._pick(*shown[user.id]) for user in users]
        raise Unfit(f"no search shows all of {texts}")

    def _pick(self, text: str, place: int) -> Found:
        return self.ask("find_users_by_name", name=text).part(place, "id")


class Scene(Draw):
    """A drawn world to ask about.

    Attributes:
        tables: What it holds.
        walk: The way to the answer.
    """

    def __init__(self, rng: np.random.Generator, env: Relational, seed: int, users: int) -> None:
        """Resets the environment to the world that is drawn from `seed`."""
        env.reset(options={"world": seed, "users": users})
        self.tables: Tables = draw_tables(seed, users)
        self.walk = Walk(env)
        super().__init__(rng)

    def only_bearers(self) -> list[User]:
        """The users whose name nobody else has."""
        borne = Counter(user.name for user in self.tables.users)
        return [user for user in self.tables.users if borne[user.name] == 1]

    def namesakes(self, fewest: int, most: int) -> list[User]:
        """All users of one name, by id.

        Raises:
            Unfit: No name is borne by so many.
        """
        borne = Counter(user.name for user in self.tables.users)
        name = self.pick(name for name, count in borne.items() if fewest <= count <= most)
        return [user for user in self.tables.users if user.name == name]

    def liked(self, user: User) -> list[int]:
        """Ids of the foods that a user likes."""
        return [like.food_id for like in self.tables.favorite_foods if like.user_id == user.id]


def place_of_highest(values: Sequence[int | None]) -> int:
    """The place of the highest value; None is none.

    Raises:
        Unfit: There is none, or two are the highest.
    """
    known = [value for value in values if value is not None]
    if not known or known.count(max(known)) > 1:
        raise Unfit("no value is higher than all others")
    return values.index(max(known))
