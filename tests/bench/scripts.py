"""What each session of the load plays, and what it must see.

A script is played here first, in process, so that every reply of the server has something to be
compared with: an observation or a state that is another session's differs. Texts to type belong to
one session each; universes and worlds are shared by a few.
"""

from __future__ import annotations

import json
import random
import string
from functools import cache
from typing import NamedTuple

from env_server.episode import Episode, EpisodeSpec
from env_server.registry import Registry
from railgym import codec
from railgym.actions import Action, Final, call
from railgym.v1 import episode_pb2

UNIVERSES = 64
WORLDS = 16
SHARES = {"typewriter": 0.8, "maths": 0.1, "relational": 0.1}
ENVS = {
    "typewriter": "railgym/Typewriter-v1",
    "maths": "railgym/MultiverseMath-v1",
    "relational": "railgym/Relational-v1",
}

registry = Registry()


class Line(NamedTuple):
    """One step: what to send, and what must come back."""

    action: episode_pb2.Action
    observation: str
    state_hash: bytes


class Script(NamedTuple):
    """An episode.

    Attributes:
        kind: "typewriter", "maths" or "relational".
        env_id: The environment.
        options_json: Of the reset.
        seed: Of the reset.
        observation: What the reset must show.
        lines: The steps; the last one ends the episode.
    """

    kind: str
    env_id: str
    options_json: str
    seed: int
    observation: str
    lines: list[Line]


def kind_of(number: int, sessions: int) -> str:
    """What the session of this number plays; the kinds are spread evenly."""
    place = number * 7_919 % sessions / sessions
    if place < SHARES["typewriter"]:
        return "typewriter"
    return "maths" if place < SHARES["typewriter"] + SHARES["maths"] else "relational"


def script_for(kind: str, number: int, seed: int) -> Script:
    """The script of a session."""
    if kind == "typewriter":
        return _typewriter(number, seed)
    return _maths(number % UNIVERSES, seed) if kind == "maths" else _relational(number % WORLDS)


def _typewriter(number: int, seed: int) -> Script:
    rng = random.Random(f"{seed} {number}")
    word = "".join(rng.choices(string.ascii_lowercase, k=24))
    return _played("typewriter", {"target": word}, [call("type_letter", letter=c) for c in word])


@cache
def _maths(universe: int, seed: int) -> Script:
    rng = random.Random(f"{seed} {universe}")
    names = ("add", "subtract", "multiply", "divide")
    actions = [
        call(rng.choice(names), a=rng.randint(1, 99), b=rng.randint(1, 99)) for _ in range(12)
    ]
    return _played("maths", {"universe": universe}, [*actions, Final("done")])


@cache
def _relational(world: int) -> Script:
    rng = random.Random(world)
    users = [rng.randint(1, 60) for _ in range(4)]
    actions = [call("get_current_user_id"), call("list_user_ids")]
    for user_id in users:
        actions += [
            call("get_user_name", user_id=user_id),
            call("get_user_favorite_foods", user_id=user_id),
        ]
    actions += [call("find_users_by_name", name=name) for name in ("Anna", "Bob")]
    return _played("relational", {"world": world}, [*actions, Final("done")])


def _played(kind: str, options: dict[str, object], actions: list[Action]) -> Script:
    spec = EpisodeSpec(ENVS[kind], None, options, seed=1)
    episode = Episode(spec, registry.env(spec.env_id).make())
    lines = []
    for number, action in enumerate(actions, start=1):
        reply = episode.step(number, action)
        message = codec.action_to_proto(action)
        lines.append(Line(message, reply.transition.observation, reply.state_hash))
    assert episode.end is not None
    start = episode.start.observation
    return Script(kind, spec.env_id, json.dumps(options), spec.seed, start, lines)
