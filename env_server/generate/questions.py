"""Questions about a drawn world that take one to six calls.

A question is one function of a scene: it picks what to ask about, walks to the answer, and gives
the text with SQL for the expected value. It raises `Unfit` where the world does not hold it.
"""

from __future__ import annotations

from itertools import combinations

from env_server.envs.world_tables import User
from env_server.generate.steps import Found
from env_server.generate.walk import Question, Scene, place_of_highest

WEATHER = ("get_current_weather_for_location", "get_weather_at_location")

CLOCK = "regexp_extract(l.local_time, '[0-9]+:[0-9]+ [AP]M')"
DEGREES = "CAST(regexp_extract(l.weather, '(-?[0-9]+)°F', 1) AS INTEGER)"
HOMES = "users u LEFT JOIN locations l ON l.id = u.location_id"
TASTES = "users u JOIN favorite_foods ff ON ff.user_id = u.id JOIN foods f ON f.id = ff.food_id"


def richest(scene: Scene, foods: list[Found]) -> Found:
    """Asks for the calories of foods, and comes to the one with the most; unknown ones aside."""
    answers = [scene.walk.ask("get_food_calories", food_id=food) for food in foods]
    return foods[place_of_highest([answer.value for answer in answers])]


def email_of_an_id(scene: Scene) -> Question:
    """One call."""
    user = scene.pick(user for user in scene.tables.users if user.email)
    scene.walk.ask("get_user_email", user_id=user.id)
    return Question(
        f"What is the email address of the user whose id is {user.id}?",
        "text",
        f"SELECT email FROM users WHERE id = {user.id}",
        [(["get_user_email"], 1)],
    )


def city_of_an_id(scene: Scene) -> Question:
    """One call."""
    location = scene.pick(scene.tables.locations)
    scene.walk.ask("get_city_for_location", location_id=location.id)
    return Question(
        f"Which city is the location whose id is {location.id}?",
        "text",
        f"SELECT city FROM locations WHERE id = {location.id}",
        [(["get_city_for_location", "find_locations_by_name"], 1)],
    )


def users_of_a_name(scene: Scene) -> Question:
    """One call."""
    user = scene.pick(scene.tables.users)
    scene.walk.ask("find_users_by_name", name=user.name)
    return Question(
        f"How many users have exactly the name {user.name}?",
        "number",
        f"SELECT count(*) FROM users WHERE name = '{user.name}'",
        [(["find_users_by_name", "get_user_name"], 1)],
    )


def color_of_the_current_user(scene: Scene) -> Question:
    """Two calls."""
    current = scene.walk.ask("get_current_user_id")
    scene.walk.ask("get_user_favorite_color", user_id=current)
    return Question(
        "What is the favorite color of the user who is signed in?",
        "text",
        "SELECT coalesce(favorite_color, 'unknown') FROM users "
        "WHERE id = (SELECT user_id FROM signed_in)",
        [(["get_current_user_id"], 1), (["get_user_favorite_color"], 1)],
        may_be_unknown=True,
    )


def calories_of_a_food(scene: Scene) -> Question:
    """Two calls."""
    food = scene.pick(food for food in scene.tables.foods if food.calories)
    scene.walk.ask("get_food_calories", food_id=scene.walk.find_food(food))
    return Question(
        f"How many calories does a serving of {food.name} have?",
        "number",
        f"SELECT calories FROM foods WHERE name = '{food.name}'",
        [(["get_food_calories"], 1)],
    )


def allergens_of_a_food(scene: Scene) -> Question:
    """Two calls."""
    food = scene.pick(scene.tables.foods)
    scene.walk.ask("get_food_allergic_ingredients", food_id=scene.walk.find_food(food))
    return Question(
        f"Which allergens does {food.name} hold?",
        "list",
        f"SELECT coalesce(allergens, ['unknown']) FROM foods WHERE name = '{food.name}'",
        [(["get_food_allergic_ingredients"], 1)],
        may_be_unknown=True,
    )


def time_in_a_city(scene: Scene) -> Question:
    """Two calls."""
    location = scene.pick(scene.tables.locations)
    found = scene.walk.find_location(location)
    scene.walk.ask("get_current_time_for_location", location_id=found)
    return Question(
        f"What time is it in {location.city}?",
        "time",
        f"SELECT coalesce({CLOCK}, 'unknown') FROM locations l WHERE city = '{location.city}'",
        [(["get_current_time_for_location"], 1)],
        may_be_unknown=True,
    )


def city_of_a_user(scene: Scene) -> Question:
    """Three calls."""
    user = scene.pick(user for user in scene.only_bearers() if user.location_id)
    home = scene.walk.ask("get_user_location", user_id=scene.walk.find_user(user))
    scene.walk.ask("get_city_for_location", location_id=home)
    return Question(
        f"In which city does {user.name} live?",
        "text",
        f"SELECT l.city FROM {HOMES} WHERE u.name = '{user.name}'",
        [(["get_user_location"], 1)],
    )


def degrees_at_a_user(scene: Scene) -> Question:
    """Three calls."""
    known = [location.id for location in scene.tables.locations if location.weather]
    user = scene.pick(user for user in scene.only_bearers() if user.location_id in known)
    home = scene.walk.ask("get_user_location", user_id=scene.walk.find_user(user))
    scene.walk.ask(WEATHER[0], location_id=home)
    return Question(
        f"How many degrees Fahrenheit are there right now where {user.name} lives?",
        "number",
        f"SELECT {DEGREES} FROM {HOMES} WHERE u.name = '{user.name}'",
        [(WEATHER, 1)],
    )


def weather_at_the_current_user(scene: Scene) -> Question:
    """Two or three calls."""
    home = scene.walk.ask("get_user_location", user_id=scene.walk.ask("get_current_user_id"))
    if home.value is not None:
        scene.walk.ask(WEATHER[0], location_id=home)
    return Question(
        "What is the weather where the user who is signed in lives? Give it as it is on record.",
        "text",
        f"SELECT coalesce(l.weather, 'unknown') FROM {HOMES} "
        "WHERE u.id = (SELECT user_id FROM signed_in)",
        [(["get_user_location"], 1)],
        may_be_unknown=True,
    )


def before_noon_at_a_user(scene: Scene) -> Question:
    """Three calls."""
    known = [location.id for location in scene.tables.locations if location.local_time]
    user = scene.pick(user for user in scene.only_bearers() if user.location_id in known)
    home = scene.walk.ask("get_user_location", user_id=scene.walk.find_user(user))
    scene.walk.ask("get_current_time_for_location", location_id=home)
    return Question(
        f"Is it before noon where {user.name} lives?",
        "yes_no",
        f"SELECT CASE WHEN l.local_time LIKE '% AM' THEN 'yes' ELSE 'no' END FROM {HOMES} "
        f"WHERE u.name = '{user.name}'",
        [(["get_user_location"], 1), (["get_current_time_for_location"], 1)],
    )


def calories_of_a_user(scene: Scene) -> Question:
    """Four to six calls."""
    known = {food.id for food in scene.tables.foods if food.calories}
    user = scene.pick(
        user
        for user in scene.only_bearers()
        if 2 <= len(scene.liked(user)) <= 4 and known.issuperset(scene.liked(user))
    )
    foods = scene.walk.ask("get_user_favorite_foods", user_id=scene.walk.find_user(user))
    for food in foods.parts():
        scene.walk.ask("get_food_calories", food_id=food)
    return Question(
        f"How many calories do {user.name}'s favorite foods have together, a serving of each?",
        "number",
        f"SELECT sum(f.calories) FROM {TASTES} WHERE u.name = '{user.name}'",
        [(["get_food_calories"], len(foods.value))],
    )


def dearest_food(scene: Scene) -> Question:
    """Three calls."""
    user = scene.pick(user for user in scene.only_bearers() if scene.liked(user))
    foods = scene.walk.ask("get_user_favorite_foods", user_id=scene.walk.find_user(user))
    scene.walk.ask("get_food_name", food_id=foods.part(0))
    return Question(
        f"What is the name of the food that {user.name} likes best?",
        "text",
        f"SELECT f.name FROM {TASTES} WHERE u.name = '{user.name}' AND ff.rank = 1",
        [(["get_user_favorite_foods"], 1)],
    )


def richest_food(scene: Scene) -> Question:
    """Five or six calls."""
    user = scene.pick(user for user in scene.only_bearers() if 2 <= len(scene.liked(user)) <= 3)
    foods = scene.walk.ask("get_user_favorite_foods", user_id=scene.walk.find_user(user))
    scene.walk.ask("get_food_name", food_id=richest(scene, foods.parts()))
    return Question(
        f"Which of {user.name}'s favorite foods has the most calories? Leave out foods whose "
        "calories are not on record.",
        "text",
        f"SELECT f.name FROM {TASTES} WHERE u.name = '{user.name}' AND f.calories IS NOT NULL "
        "ORDER BY f.calories DESC, f.id LIMIT 1",
        [(["get_food_calories"], len(foods.value))],
    )


def same_provider(scene: Scene) -> Question:
    """Three or four calls."""
    users = [user for user in scene.only_bearers() if user.email]
    same = scene.between(0, 1) == 1
    pair = scene.pick(
        pair
        for pair in combinations(users, 2)
        if (_provider(pair[0]) == _provider(pair[1])) == same
    )
    for found in scene.walk.find_users(pair):
        scene.walk.ask("get_user_email", user_id=found)
    names = [user.name for user in pair]
    return Question(
        f"Do {names[0]} and {names[1]} use the same email provider?",
        "yes_no",
        "SELECT CASE WHEN count(DISTINCT split_part(email, '@', 2)) = 1 THEN 'yes' ELSE 'no' END "
        f"FROM users WHERE name IN ('{names[0]}', '{names[1]}')",
        [(["get_user_email"], 2)],
    )


def namesakes_in_a_city(scene: Scene) -> Question:
    """Four to six calls."""
    users = scene.namesakes(2, 4)
    homes = {user.location_id for user in users}
    location = scene.pick(place for place in scene.tables.locations if place.id in homes)
    for found in scene.walk.find_users(users):
        scene.walk.ask("get_user_location", user_id=found)
    scene.walk.find_location(location)
    return Question(
        f"How many of the users with the name {users[0].name} live in {location.city}?",
        "number",
        f"SELECT count(*) FROM {HOMES} "
        f"WHERE u.name = '{users[0].name}' AND l.city = '{location.city}'",
        [(["get_user_location"], len(users))],
    )


def _provider(user: User) -> str:
    return (user.email or "").partition("@")[2]
