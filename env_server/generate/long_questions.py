"""Questions about a drawn world that take seven to twelve calls.

All of them need every value that they ask for, so that a lucky order saves no call. The data that
miss are left out by a rule in the text, or end the chain with "unknown". See `questions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from env_server.envs.world_tables import User
from env_server.generate.questions import CLOCK, DEGREES, HOMES, TASTES, WEATHER, richest
from env_server.generate.steps import Found
from env_server.generate.walk import Question, Scene, place_of_highest


def calories_of_many_foods(scene: Scene) -> Question:
    """Seven or eight calls."""
    user = scene.pick(user for user in scene.only_bearers() if len(scene.liked(user)) >= 5)
    [foods] = _tastes(scene, [user])
    for food in foods:
        scene.walk.ask("get_food_calories", food_id=food)
    return Question(
        f"How many calories do {user.name}'s favorite foods have together, a serving of each? "
        "Leave out foods whose calories are not on record.",
        "number",
        f"SELECT sum(f.calories) FROM {TASTES} WHERE u.name = '{user.name}'",
        [(["get_food_calories"], len(foods))],
    )


def allergens_of_many_foods(scene: Scene) -> Question:
    """Seven or eight calls."""
    user = scene.pick(user for user in scene.only_bearers() if len(scene.liked(user)) >= 5)
    [foods] = _tastes(scene, [user])
    for food in foods:
        scene.walk.ask("get_food_allergic_ingredients", food_id=food)
    return Question(
        f"Which allergens do {user.name}'s favorite foods hold? Name each once, and leave out "
        "foods of which that is not on record.",
        "list",
        "SELECT coalesce(list_sort(list_distinct(flatten(list(f.allergens)))), []) "
        f"FROM {TASTES} WHERE u.name = '{user.name}'",
        [(["get_food_allergic_ingredients"], len(foods))],
    )


def calories_between_two(scene: Scene) -> Question:
    """Seven to twelve calls. What both like makes no difference, and need not be asked."""
    pair = scene.pick_some((user for user in scene.only_bearers() if scene.liked(user)), 2)
    one, other = _tastes(scene, pair)
    both = {food.value for food in one} & {food.value for food in other}
    apart = [food for food in (*one, *other) if food.value not in both]
    for food in apart:
        scene.walk.ask("get_food_calories", food_id=food)
    total = f"SELECT coalesce(sum(f.calories), 0) FROM {TASTES} WHERE u.name ="
    return Question(
        f"Add up the calories of {pair[0].name}'s favorite foods, a serving of each, and those of "
        f"{pair[1].name}'s. How far are the two sums apart? Leave out foods whose calories are "
        "not on record.",
        "number",
        f"SELECT abs(({total} '{pair[0].name}') - ({total} '{pair[1].name}'))",
        [(["get_food_calories"], len(apart))],
    )


def foods_with_an_allergen(scene: Scene) -> Question:
    """Seven to twelve calls."""
    pair = scene.pick_some((user for user in scene.only_bearers() if scene.liked(user)), 2)
    foods = _either(_tastes(scene, pair))
    held = [
        scene.walk.ask("get_food_allergic_ingredients", food_id=food).value or [] for food in foods
    ]
    allergen = scene.pick(sorted({allergen for allergens in held for allergen in allergens}))
    return Question(
        f"Take the foods that {pair[0].name} or {pair[1].name} or both have among their "
        f"favorites, each food once. How many of them hold {allergen.lower()}? Leave out foods of "
        "which that is not on record.",
        "number",
        f"SELECT count(DISTINCT f.id) FROM {TASTES} "
        f"WHERE u.name IN ('{pair[0].name}', '{pair[1].name}') "
        f"AND list_contains(f.allergens, '{allergen}')",
        [(["get_food_allergic_ingredients"], len(foods))],
    )


def allergens_of_the_richest(scene: Scene) -> Question:
    """Seven to twelve calls; unknown where that food's allergens are missing."""
    pair = scene.pick_some((user for user in scene.only_bearers() if scene.liked(user)), 2)
    foods = _either(_tastes(scene, pair))
    scene.walk.ask("get_food_allergic_ingredients", food_id=richest(scene, foods))
    return Question(
        f"Among all favorite foods of {pair[0].name} and {pair[1].name}, take the one with the "
        "most calories, leaving out those whose calories are not on record. Which allergens does "
        "it hold?",
        "list",
        f"SELECT coalesce(f.allergens, ['unknown']) FROM {TASTES} "
        f"WHERE u.name IN ('{pair[0].name}', '{pair[1].name}') AND f.calories IS NOT NULL "
        "ORDER BY f.calories DESC, f.id LIMIT 1",
        [(["get_food_calories"], len(foods))],
        may_be_unknown=True,
    )


def namesakes_before_noon(scene: Scene) -> Question:
    """Seven calls and more."""
    users = scene.namesakes(3, 6)
    homes = _homes(scene, users)
    for home in _known(homes):
        scene.walk.ask("get_current_time_for_location", location_id=home)
    return Question(
        f"Several users have the name {users[0].name}. For how many of them is it before noon "
        "where they live? Leave out those whose home or local time is not on record.",
        "number",
        f"SELECT count(*) FROM {HOMES} "
        f"WHERE u.name = '{users[0].name}' AND l.local_time LIKE '% AM'",
        [
            (["get_user_location"], len(users)),
            (["get_current_time_for_location"], len(_known(homes))),
        ],
    )


def time_at_the_hungriest(scene: Scene) -> Question:
    """Seven calls and more; unknown where home or time is missing."""
    users = scene.namesakes(4, 8)
    hungriest = place_of_highest([len(foods) for foods in _tastes(scene, users)])
    [home] = _homes(scene, [users[hungriest]])
    for place in _known([home]):
        scene.walk.ask("get_current_time_for_location", location_id=place)
    return Question(
        f"Several users have the name {users[0].name}. Take the one with the most favorite "
        "foods. What time is it where that user lives?",
        "time",
        f"SELECT coalesce({CLOCK}, 'unknown') FROM {HOMES} WHERE u.name = '{users[0].name}' "
        "ORDER BY (SELECT count(*) FROM favorite_foods ff WHERE ff.user_id = u.id) DESC, u.id "
        "LIMIT 1",
        [(["get_user_favorite_foods"], len(users)), (["get_user_location"], 1)],
        may_be_unknown=True,
    )


def email_at_the_warmest(scene: Scene) -> Question:
    """Seven to twelve calls; unknown where that user has no address."""
    users = scene.pick_some(scene.only_bearers(), scene.between(3, 4))
    homes = _homes(scene, users)
    for home in _known(homes):
        scene.walk.ask(WEATHER[0], location_id=home)
    degrees = {place.id: _degrees(place.weather) for place in scene.tables.locations}
    warmest = users[place_of_highest([degrees.get(home.value) for home in homes])]
    scene.walk.ask("get_user_email", user_id=scene.walk.find_user(warmest))
    names = [user.name for user in users]
    quoted = ", ".join(f"'{name}'" for name in names)
    return Question(
        f"Who of {', '.join(names[:-1])} and {names[-1]} lives where it is warmest right now? "
        "Leave out those whose home or weather is not on record. What is the email address of "
        "that user?",
        "text",
        f"SELECT coalesce(u.email, 'unknown') FROM {HOMES} "
        f"WHERE u.name IN ({quoted}) AND l.weather IS NOT NULL ORDER BY {DEGREES} DESC, u.id "
        "LIMIT 1",
        [(["get_user_location"], len(users)), (WEATHER, len(_known(homes)))],
        may_be_unknown=True,
    )


def colors_of_ids(scene: Scene) -> Question:
    """Seven to ten calls."""
    users = scene.pick_some(scene.tables.users, scene.between(7, 10))
    for user in users:
        scene.walk.ask("get_user_favorite_color", user_id=user.id)
    ids = [str(user.id) for user in users]
    return Question(
        f"How many different favorite colors do the users with the ids {', '.join(ids[:-1])} and "
        f"{ids[-1]} have between them? Leave out those whose color is not on record.",
        "number",
        f"SELECT count(DISTINCT favorite_color) FROM users WHERE id IN ({', '.join(ids)})",
        [(["get_user_favorite_color"], len(ids))],
    )


def _tastes(scene: Scene, users: Sequence[User]) -> list[list[Found]]:
    """Comes to the favorite foods of each user."""
    found = scene.walk.find_users(users)
    return [scene.walk.ask("get_user_favorite_foods", user_id=user).parts() for user in found]


def _either(tastes: list[list[Found]]) -> list[Found]:
    """Each food of several lists once."""
    return list({food.value: food for foods in tastes for food in foods}.values())


def _homes(scene: Scene, users: Sequence[User]) -> list[Found]:
    """Comes to the location of each user."""
    found = scene.walk.find_users(users)
    return [scene.walk.ask("get_user_location", user_id=user) for user in found]


def _known(homes: list[Found]) -> list[Found]:
    """Each location once, where there is one."""
    return list({home.value: home for home in homes if home.value is not None}.values())


def _degrees(weather: str | None) -> int | None:
    return None if weather is None else int(weather.split()[-1].removesuffix("°F"))
