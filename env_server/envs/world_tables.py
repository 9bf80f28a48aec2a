"""The rows of a world: the reference world, and worlds drawn from a number.

A drawn world is bigger and untidy, as real records are: names that differ in a letter, several
users of one name, and fields that nobody filled in. It knows nothing of how rows are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

MIN_USERS = 10
MAX_USERS = 200


class User(NamedTuple):
    """A person; `location_id` says where they live."""

    id: int
    name: str
    email: str | None
    location_id: int | None
    favorite_color: str | None


class FavoriteFood(NamedTuple):
    """A food that a user likes; rank 1 is the dearest."""

    user_id: int
    rank: int
    food_id: int


class Location(NamedTuple):
    """A city, with its local time as "2023-11-14 10:30 AM" and its weather right now."""

    id: int
    city: str
    local_time: str | None
    weather: str | None


class Food(NamedTuple):
    """A food, with the calories of a serving; allergens are empty for none, None for unknown."""

    id: int
    name: str
    calories: int | None
    allergens: list[str] | None


class SignedIn(NamedTuple):
    """The current user."""

    user_id: int


class Tables(NamedTuple):
    """All rows of a world, each table in the order of its ids."""

    users: list[User]
    favorite_foods: list[FavoriteFood]
    locations: list[Location]
    foods: list[Food]
    signed_in: list[SignedIn]


def reference_tables() -> Tables:
    """The public world of six users, whose questions have known answers."""
    liked = {1: [1, 2, 3], 21: [4, 5, 6], 35: [3, 7, 2], 41: [6, 1, 4], 42: [5, 7, 4], 43: [3]}
    return Tables(
        users=[
            User(1, "Alice", "alice@gmail.com", 1, "red"),
            User(21, "Bob", "bob@hotmail.com", 2, "orange"),
            User(35, "Charlie", "charlie@yahoo.com", 3, "yellow"),
            User(41, "Donna", "donna@example.com", 4, "green"),
            User(42, "Eve", "eve@example.org", 5, "blue"),
            User(43, "Frank The Cat", "frank.the.cat@langchain.dev", 5, "yellow"),
        ],
        favorite_foods=_favorites(liked),
        locations=[
            Location(1, "New York", "2023-11-14 10:30 AM", "Partly Cloudy, Temperature: 68°F"),
            Location(2, "Los Angeles", "2023-11-14 7:45 AM", "Sunny, Temperature: 75°F"),
            Location(3, "Chicago", "2023-11-14 11:15 AM", "Mostly Cloudy, Temperature: 60°F"),
            Location(4, "Houston", "2023-11-14 12:00 PM", "Rainy, Temperature: 55°F"),
            Location(5, "Miami", "2023-11-14 1:20 PM", "Partly Cloudy, Temperature: 80°F"),
        ],
        foods=[
            Food(1, "Pizza", 285, ["Gluten", "Dairy"]),
            Food(2, "Chocolate", 50, ["Milk", "Soy"]),
            Food(3, "Sushi", 300, ["Fish", "Soy"]),
            Food(4, "Burger", 350, ["Gluten", "Dairy"]),
            Food(5, "Ice Cream", 200, ["Dairy"]),
            Food(6, "Pasta", 180, ["Gluten"]),
            Food(7, "Salad", 50, []),
        ],
        signed_in=[SignedIn(35)],
    )


def draw_tables(seed: int, users: int) -> Tables:
    """Draws a world; equal arguments give equal worlds.

    Args:
        seed: 0 or more.
        users: 10 to 200.
    """
    rng = np.random.default_rng(seed)
    locations = [_draw_location(rng, id, city) for id, city in _draw_named(rng, CITIES, 12, 99)]
    foods = [_draw_food(rng, id, name) for id, name in _draw_named(rng, FOODS, 36, 199)]
    people = _draw_users(rng, users, [location.id for location in locations])
    food_ids = [food.id for food in foods]
    liked = {user.id: _draw_some(rng, food_ids, int(rng.integers(0, 7))) for user in people}
    current = people[int(rng.integers(users))].id
    return Tables(people, _favorites(liked), locations, foods, [SignedIn(current)])


def _favorites(liked: dict[int, list[int]]) -> list[FavoriteFood]:
    return [
        FavoriteFood(user_id, rank, food_id)
        for user_id, food_ids in liked.items()
        for rank, food_id in enumerate(food_ids, start=1)
    ]


def _draw_users(rng: np.random.Generator, count: int, location_ids: list[int]) -> list[User]:
    taken: dict[str, int] = {}
    users = []
    for user_id in _draw_ids(rng, count, 999):
        name = _draw_one(rng, NAMES)
        taken[name] = taken.get(name, 0) + 1
        number = "" if taken[name] == 1 else str(taken[name])
        email = f"{name.lower()}{number}@{_draw_one(rng, PROVIDERS)}"
        location_id = _draw_one(rng, location_ids)
        color = _draw_one(rng, COLORS)
        users.append(
            User(
                user_id,
                name,
                _unless_missing(rng, email),
                _unless_missing(rng, location_id),
                _unless_missing(rng, color),
            )
        )
    return users


def _draw_location(rng: np.random.Generator, location_id: int, city: str) -> Location:
    hour, minute = int(rng.integers(1, 13)), 5 * int(rng.integers(12))
    local_time = f"2023-11-14 {hour}:{minute:02} {_draw_one(rng, ('AM', 'PM'))}"
    weather = f"{_draw_one(rng, SKIES)}, Temperature: {int(rng.integers(-5, 105))}°F"
    return Location(
        location_id, city, _unless_missing(rng, local_time), _unless_missing(rng, weather)
    )


def _draw_food(rng: np.random.Generator, food_id: int, name: str) -> Food:
    calories = 5 * int(rng.integers(4, 140))
    allergens = _draw_some(rng, ALLERGENS, int(rng.integers(0, 4)))
    return Food(food_id, name, _unless_missing(rng, calories), _unless_missing(rng, allergens))


T = TypeVar("T")


def _draw_one(rng: np.random.Generator, pool: Sequence[T]) -> T:
    return pool[int(rng.integers(len(pool)))]


def _draw_some(rng: np.random.Generator, pool: Sequence[T], count: int) -> list[T]:
    """Draws different items, in any order."""
    return [pool[int(i)] for i in rng.permutation(len(pool))[:count]]


def _draw_ids(rng: np.random.Generator, count: int, most: int) -> list[int]:
    """Draws different ids from 1 to `most`, in ascending order."""
    return sorted(_draw_some(rng, range(1, most + 1), count))


def _draw_named(
    rng: np.random.Generator, pool: Sequence[str], count: int, most: int
) -> list[tuple[int, str]]:
    return list(zip(_draw_ids(rng, count, most), _draw_some(rng, pool, count), strict=True))


def _unless_missing(rng: np.random.Generator, value: T) -> T | None:
    """The value, or, one time in ten, None."""
    return None if rng.integers(10) == 0 else value


NAMES = (
    *("Amir", "Amira", "Ann", "Anna", "Anne", "Carl", "Carla", "Dina", "Dinah", "Elena", "Eric"),
    *("Erik", "Erika", "Hana", "Hannah", "Helena", "Ines", "Ivan", "Ivana", "Jan", "Jana", "Joan"),
    *("Johan", "John", "Jon", "Karl", "Karla", "Lea", "Leah", "Lena", "Marc", "Marco", "Maria"),
    *("Marie", "Mark", "Mary", "Mira", "Nina", "Omar", "Sara", "Sarah", "Sofia", "Sophia"),
)
"""Some hold the same letters, so that a search ranks them alike."""

CITIES = (
    *("Bergen", "Bern", "Cordoba", "Dover", "Durban", "Genoa", "Geneva", "Ghent", "Granada"),
    *("Hanoi", "Lima", "Limerick", "Lisbon", "Mali", "Manila", "Milan", "Naples", "Nara"),
    *("Newark", "Newport", "Odense", "Oslo", "Porto", "Portland", "Quito", "Salem", "Salerno"),
    *("San Jose", "San Juan", "Santa Ana", "Santa Fe", "Tartu", "Tunis", "Turin", "Valencia"),
)

FOODS = (
    *("Apple Pie", "Bean Salad", "Bean Soup", "Beet Salad", "Borscht", "Brown Rice", "Burrito"),
    *("Carrot Cake", "Cheese Cake", "Chili", "Corn Bread", "Couscous", "Curry", "Dumplings"),
    *("Falafel", "Fish Cake", "Fish Soup", "Flan", "Fried Rice", "Goulash", "Gnocchi", "Hummus"),
    *("Kimchi", "Lasagna", "Lentil Soup", "Miso Soup", "Noodle Soup", "Noodles", "Omelette"),
    *("Onion Soup", "Paella", "Pancakes", "Pasta Salad", "Pea Soup", "Pierogi", "Plum Cake"),
    *("Porridge", "Potato Salad", "Potato Soup", "Pumpkin Pie", "Quiche", "Ramen", "Ravioli"),
    *("Rice Pudding", "Risotto", "Samosa", "Stew", "Stir Fry", "Tabbouleh", "Tacos", "Tamales"),
    *("Tempura", "Tomato Salad", "Tomato Soup", "Waffles"),
)

ALLERGENS = ("Celery", "Dairy", "Eggs", "Fish", "Gluten", "Mustard", "Nuts", "Sesame", "Soy")

COLORS = ("black", "blue", "brown", "green", "orange", "pink", "purple", "red", "white", "yellow")

PROVIDERS = ("example.com", "example.net", "example.org", "mail.example", "post.example")

SKIES = ("Clear", "Cloudy", "Foggy", "Rainy", "Snowy", "Stormy", "Sunny", "Windy")
