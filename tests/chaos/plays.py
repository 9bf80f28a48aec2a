"""What a client plays, and what it must see: each episode is played in process at the same time.

No two clients type the same text or draw from the same generator, so that a reply meant for
another one never fits.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from typing import Any, NamedTuple

from env_server import codec
from env_server.env import Action, Final, ToolCall
from env_server.episode import Episode, EpisodeSpec
from env_server.registry import Registry
from railgym.actions import call
from railgym.v1 import episode_pb2

TYPEWRITER = "railgym/Typewriter-v1"
KEYS = "railgym/TypewriterKeys-v1"
MATHS = "railgym/MultiverseMath-v1"
RELATIONAL = "railgym/Relational-v1"
ENV_IDS = (TYPEWRITER, RELATIONAL, MATHS, KEYS)
WORLDS = 40
"""Relational worlds among all clients; their tables take a while to make."""


class Play(NamedTuple):
    """An episode to be played.

    Attributes:
        env_id: The environment.
        seed: Of the reset.
        options: Of the reset.
        actions: To its end.
    """

    env_id: str
    seed: int
    options: dict[str, Any]
    actions: list[Action]


def plays(client: int, seed: int, registry: Registry) -> Iterator[Play]:
    """The episodes of a client, without end."""
    env_id = ENV_IDS[client % len(ENV_IDS)]
    for number in range(1_000_000):
        rng = random.Random(f"{seed}/{client}/{number}")
        if env_id in (TYPEWRITER, KEYS):
            yield _typing(env_id, client, number, rng)
        else:
            yield _calling(env_id, client, rng, registry)


class Shadow:
    """The same episode in process: what its server must say."""

    def __init__(self, play: Play, registry: Registry) -> None:
        """Begins it."""
        spec = EpisodeSpec(play.env_id, None, play.options, play.seed)
        self._episode = Episode(spec, registry.env(play.env_id).make())
        self.start = self._episode.start

    def step(self, action: Action) -> episode_pb2.Transition:
        """Takes the next step, and gives the one reply that is right."""
        reply = self._episode.step(self._episode.latest + 1, action)
        return codec.reply_to_proto(reply, self._episode.env)


def _typing(env_id: str, client: int, number: int, rng: random.Random) -> Play:
    """Types a word that begins with the client's own name."""
    name = "".join(string.ascii_lowercase[int(digit)] for digit in f"{client:03}{number:03}")
    target = name + "".join(rng.choices(string.ascii_lowercase, k=rng.randint(4, 20)))
    if env_id == TYPEWRITER:
        typed: list[Action] = [call("type_letter", letter=letter) for letter in target]
    else:
        typed = [ToolCall(letter) for letter in target]
    typed.insert(rng.randrange(len(typed)), ToolCall("nonsense", "{"))
    options = {"target": target, "finish": "final"}
    return Play(env_id, client, options, [*typed, Final(target)])


def _calling(env_id: str, client: int, rng: random.Random, registry: Registry) -> Play:
    """Calls tools at random."""
    space = registry.env(env_id).make().action_space
    space.seed(rng.randrange(2**31))
    calls = [space.sample() for _ in range(rng.randint(8, 24))]
    seed = client % WORLDS if env_id == RELATIONAL else rng.randrange(2**31)
    calls = [action for action in calls if not isinstance(action, Final)]
    return Play(env_id, seed, {}, [*calls, Final(f"{client}")])
