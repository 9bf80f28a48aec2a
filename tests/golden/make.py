"""Writes the golden logs of this version, which every later version must replay to the bit.

    .venv/bin/python tests/golden/make.py
    .venv/bin/buf build proto -o tests/golden/VERSION/wire.binpb

Run it for a version before its release, and commit the folder. Run again, it adds a segment of
the plays that are not there yet. It is append-only: what was committed is never written again.
Where a log does not replay any more, the change at hand breaks the logs of users, and needs a new
environment id (`-v2`) or a new task id instead.

Left out on purpose are the logarithm, powers and angles of MultiverseMath: the last digit of those
is the C library's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from env_server import codec
from env_server.env import Action, Final, NoAction, Plain, Text, ToolCall
from env_server.envs.hosted import generator_state
from env_server.episode import Episode, EpisodeSpec, Rule
from env_server.gold import play_gold
from env_server.log import Chain, LoggedEpisode, LogWriter, episodes
from env_server.registry import Registry
from railgym import codec as wire
from railgym._version import __version__
from railgym.spaces import AS_THEY_ARE, ToolShaping
from railgym.v1 import episode_pb2 as pb

MATH = "railgym/MultiverseMath-v1"
ORDERS = "railgym/Orders-v1"
RELATIONAL = "railgym/Relational-v1"
TYPEWRITER = "railgym/Typewriter-v1"
KEYS = "railgym/TypewriterKeys-v1"
POLICY = "railgym/TypewriterPolicy-v1"
CARTPOLE = "CartPole-v1"

GOLD = [
    "multiverse_math/reference/01",
    "relational/reference/05",
    "typewriter/reference/dog",
    "typewriter_keys/reference/cat",
]

LETTERS: list[Action] = [
    ToolCall("type_letter", json.dumps({"letter": letter})) for letter in "d\u00f6\U0001f600"
]

MISTAKES: list[Action] = [
    ToolCall("no_such_tool"),
    ToolCall("type_letter", '{"letter": "d"'),
    ToolCall("type_letter", ""),
    ToolCall("type_letter", '{"letter": 7, "size": 2}'),
    ToolCall("type_letter", '{"letter": "do"}'),
    ToolCall("type_letter", '{"letter": NaN}'),
    ToolCall("type_letter", '{"letter": "a", "letter": "b"}'),
    ToolCall("type_letter", '{"letter": ' + "[" * 70 + "]" * 70 + "}"),
    Text("I will type a d."),
    Text("   "),
    Text('Now: {"action": "type_letter", "action_input": {"letter": "\\ud800"}}'),
    NoAction("truncated_output", 'type_letter({"let'),
    NoAction("empty_response"),
]

SUMS: list[Action] = [
    ToolCall("add", '{"a": 25.0, "b": 1e2}'),
    ToolCall("divide", '{"a": 1, "b": 0}'),
    ToolCall("pi", "null"),
]

LENIENT: list[Action] = [
    ToolCall("multiply", '{"a": "2.5", "b": 9007199254740993}'),
    ToolCall("negate", '{"a": "NaN"}'),
]

WORLD = {"world": "episode", "users": 20}

ASKS: list[Action] = [
    ToolCall("list_user_ids"),
    ToolCall("find_users_by_name", '{"name": "ann"}'),
    ToolCall("get_user_email", '{"user_id": -1}'),
    Text('{"thought": "", "action": "get_current_user_id", "action_input": {}}'),
]


SERVES: list[Action] = [
    ToolCall("find_customers", '{"text": "novak"}'),
    ToolCall("get_order", '{"order_id": 3714}'),
    ToolCall("change_quantity", '{"order_id": 3714, "line": 1, "quantity": 2.0}'),
    ToolCall("cancel_order", '{"order_id": 3714, "reason": "fraud"}'),
    ToolCall("cancel_order", '{"order_id": 3714, "reason": "fraud"}'),
    ToolCall("change_address", '{"order_id": 4023, "address": "1 D\u00f6ne \ud83d\ude00"}'),
    ToolCall("query_logistics", '{"order_id": 1688}'),
    ToolCall("resend_order", '{"order_id": 1688}'),
    ToolCall("refund_order", '{"order_id": 3214, "line": 1, "amount_cents": 250}'),
    ToolCall("list_refunds", '{"order_id": 3214}'),
    ToolCall("reserve_stock", '{"product_id": 863, "quantity": 2, "customer_id": 38}'),
    ToolCall("refund_policy", '{"category": "office"}'),
]

SHAPED = ToolShaping(5, renamed=True, seed=11)


class Play(NamedTuple):
    """A session: episodes of one environment, the first from seed 7, the others unseeded."""

    env_id: str
    episodes: Sequence[tuple[dict[str, Any], Sequence[Action]]]
    task_id: str = ""
    rule: Rule = "strict"
    shaping: ToolShaping = AS_THEY_ARE


def plays(registry: Registry) -> Iterator[Play]:
    """What is recorded: every environment, and everything that can stand in a log."""
    for task_id in GOLD:
        episode, _ = play_gold(registry.task(task_id), registry)
        yield Play(episode.spec.env_id, [({}, episode.actions)], task_id)
    dog = "typewriter/reference/dog"
    yield Play(TYPEWRITER, [({}, [Final("")]), ({}, [NoAction("refusal", "No.")])], dog)
    yield Play(TYPEWRITER, [({}, LETTERS * 4)], dog)
    typing = {"target": "d\u00f6\U0001f600", "finish": "final"}
    yield Play(TYPEWRITER, [(typing, [*LETTERS, *MISTAKES, Text('{"action": "final"}')])])
    yield Play(TYPEWRITER, [({}, LETTERS[:1]), ({}, LETTERS[1:])])
    yield Play(KEYS, [({"target": "ab"}, [ToolCall("a", ""), ToolCall("b")]), ({}, [])])
    drawn = {"universe": "episode"}
    yield Play(MATH, [(drawn, SUMS), (drawn, SUMS[:1])])
    yield Play(MATH, [({"universe": 3}, LENIENT)], rule="lenient")
    yield Play(RELATIONAL, [(WORLD, ASKS), (WORLD, ASKS), ({}, [*ASKS, Final("none")])])
    yield Play(POLICY, [({"target": "cab"}, _plain(2, 0, 1)), ({}, _plain(0)), ({}, [])])
    yield Play(CARTPOLE, [({}, _plain(*[1] * 20)), ({}, _plain(0, 1, 0, 1, 0))])
    shop = {"world": 7}
    yield Play(ORDERS, [(shop, SERVES), ({"world": "episode"}, SERVES[:1]), ({}, [Final("")])])
    every = [ToolCall(f"tool_{number:02}") for number in range(1, 23)]
    yield Play(ORDERS, [(shop, [*every, SERVES[0]])], shaping=SHAPED)


def write(directory: Path, registry: Registry) -> None:
    """Plays and logs everything that the folder does not hold yet."""
    there = {logged.episode_id.partition(".")[0] for logged in logged_in(directory)}
    with LogWriter(directory) as log:
        for number, play in enumerate(plays(registry), start=1):
            name = f"golden-{number:02}"
            if name not in there:
                log.append(list(_records(Chain(name), play, registry)))


def logged_in(directory: Path) -> list[LoggedEpisode]:
    """The episodes that a folder holds."""
    return list(episodes(directory)) if directory.exists() else []


def _plain(*values: int) -> list[Action]:
    return [Plain(np.int64(value)) for value in values]


def _records(chain: Chain, play: Play, registry: Registry) -> Iterator[bytes]:
    entry = registry.env(play.env_id)
    env = entry.make()
    task = registry.task(play.task_id) if play.task_id else None
    shaping = codec.shaping_to_proto(play.shaping)
    opened = pb.SessionOpened(env_id=play.env_id, task_id=play.task_id, tool_shaping=shaping)
    yield chain.record(session_opened=opened)
    for number, (options, actions) in enumerate(play.episodes, start=1):
        name = f"{chain.session_id}.{number}"
        spec = EpisodeSpec(
            play.env_id,
            task,
            {**(task.options if task else {}), **options},
            seed=7 if number == 1 else None,
            generator_state=None if number == 1 else generator_state(env),
            rule=play.rule,
            shaping=play.shaping,
        )
        episode = Episode(spec, env)
        started = codec.started_event(episode, entry, {"agent": "golden"})
        yield chain.record(name, episode_started=started)
        yield from _steps(chain, name, episode, actions)
        reason = wire.end_reason_to_proto(episode.end or "client_closed")
        ended = pb.EpisodeEnded(reason=reason, state_hash=episode.state_hash)
        yield chain.record(name, episode_ended=ended)
    yield chain.record(session_closed=pb.SessionClosed(reason=pb.END_REASON_CLIENT_CLOSED))


def _steps(chain: Chain, name: str, episode: Episode, actions: Sequence[Action]) -> Iterator[bytes]:
    for number, action in enumerate(actions, start=1):
        if episode.end is not None:
            return
        reply = episode.step(number, action)
        taken = pb.StepTaken(
            step=number,
            action=wire.action_to_proto(action),
            transition=codec.reply_to_proto(reply, episode.env),
        )
        yield chain.record(name, step_taken=taken)


def main() -> None:
    """Writes what the folder of this version does not hold yet."""
    directory = Path(__file__).parent / __version__
    registry = Registry()
    registry.add(CARTPOLE)
    write(directory, registry)
    print(directory)


if __name__ == "__main__":
    main()
