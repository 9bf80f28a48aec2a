"""What is fuzzed: a function for each decoder that reads bytes from outside.

A target takes any bytes at all. It returns where they are read, and where they are refused in the
way that the decoder documents; it raises for any other exception, and where what was read does
not hold together.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from google.protobuf.message import DecodeError

from env_server import codec, protocol
from env_server.arguments import BadJson, BrokenJson, canonical_json, parse_object
from env_server.env import AgentFault, ToolCall, ToolEnv
from env_server.episode import Episode, EpisodeSpec
from env_server.errors import BadAction, BadOptions, NotResumable
from env_server.log import Chain, Damage, LogIndex, LogWriter, episodes, frames, group, read
from env_server.log.frames import Frame, Torn
from env_server.log.reader import Record, record
from env_server.registry import Registry
from env_server.scoring import replay
from env_server.scoring.score import Scorer
from env_server.service.env_process import Hosts
from env_server.service.limits import Limits
from env_server.service.metrics import Metrics
from env_server.service.resume import end_of, resume
from env_server.tasks import Task, TaskError, scan_tasks
from railgym import codec as wire
from railgym.spaces import ToolSpace
from railgym.v1 import episode_pb2, space_pb2

REGISTRY = Registry()
REGISTRY.add("CartPole-v1")
ENTRIES = list(REGISTRY.envs.values())
TOOLS = [(entry, tool) for entry in ENTRIES for tool in entry.tools.values()]
RULES = ("strict", "lenient")
SCORER = Scorer(REGISTRY)
METRICS = Metrics()
HOSTS = Hosts(Limits())
SPACES: list[gymnasium.Space[Any] | None] = [
    None,
    gymnasium.spaces.Discrete(5),
    gymnasium.spaces.Box(-1, 1, (2, 3), np.float32),
    gymnasium.spaces.MultiBinary(4),
    gymnasium.spaces.MultiDiscrete([3, 4]),
    gymnasium.spaces.Text(8),
    gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3)),
    gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3), stack=True),
    gymnasium.spaces.OneOf([gymnasium.spaces.Discrete(2), gymnasium.spaces.Text(3)]),
    gymnasium.spaces.Graph(gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)),
    gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(0, 1, (1,))]),
    gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(2), b=gymnasium.spaces.MultiBinary(2)),
]
FOLDER = Path(tempfile.mkdtemp(prefix="railgym-fuzz-"))
SEGMENT = FOLDER / "log" / "00000001-00000000.rgl"
TASKS = FOLDER / "tasks.jsonl"


def log_segment(data: bytes) -> None:
    """Reads a segment: each of its bytes is of a frame, of damage, or of the torn end."""
    _write_log(data)
    end, items = 0, list(frames.scan(SEGMENT))
    for item in items:
        assert item.offset == end, f"bytes {end} to {item.offset} are of nothing"
        end += len(frames.encode(item.payload)) if isinstance(item, Frame) else item.length
    assert end == len(data)
    torn = items[-1] if items and isinstance(items[-1], Torn) else None
    assert frames.torn_tail(SEGMENT) == torn
    list(episodes(SEGMENT))


def log_records(data: bytes) -> None:
    """Reads whole frames around any payloads, and opens the log to go on with it."""
    payloads = list(split(data))
    _write_log(b"".join(map(frames.encode, payloads)))
    found = list(read(SEGMENT))
    assert len(found) == len(payloads)
    for logged in episodes(SEGMENT.parent):
        assert logged.problem is None or logged.problem.reason
    index = LogIndex(SEGMENT.parent)
    index.refresh()
    for session_id in {item.event.session_id for item in found if isinstance(item, Record)}:
        index.session(session_id)
    with LogWriter(SEGMENT.parent) as writer:
        writer.append([b""])
        own = writer.path
    own.unlink()


def replayed(data: bytes) -> None:
    """Replays a log whose records are whole and linked, whatever they say."""
    for logged in group(_linked(split(data))):
        score = SCORER.score(logged)
        assert score.valid == (score.invalid_reason is None)
        if logged.started is None or logged.problem is not None:
            continue
        with contextlib.suppress(replay.Unreplayable):  # unlike the scorer, it hides no other
            episode, entry, _ = replay.begin(logged.started, REGISTRY)
            for taken in logged.steps:
                replay.follow(episode, entry, taken)


def resumed(data: bytes) -> None:
    """Takes up the sessions of a log."""
    sessions: dict[str, list[Record]] = {}
    for item in _linked(split(data)):
        sessions.setdefault(item.event.session_id, []).append(item)
    for records in sessions.values():
        end_of(records, served_since=0.0)
        with contextlib.suppress(NotResumable):
            asyncio.run(_resume(records))


def wire_action(data: bytes) -> None:
    """Reads an action for an environment, and takes it as a step."""
    entry, rest = _choose(ENTRIES, data)
    message = _message(episode_pb2.Action, rest)
    episode = Episode(EpisodeSpec(entry.env_id, None, {}, seed=1), entry.make())
    with contextlib.suppress(BadAction):
        action = codec.action_from_proto(message, entry, episode.env.action_space)
        codec.reply_to_proto(episode.step(1, action), episode.env)


def wire_value(data: bytes) -> None:
    """Reads a value of a space; one that the space contains can be written and read again."""
    space, rest = _choose(SPACES, data)
    message = _message(space_pb2.Value, rest)
    try:
        value = wire.value_from_proto(message, space)
        inside = space is None or space.contains(value)
    except (ValueError, TypeError):
        return
    if inside:
        again = wire.value_from_proto(wire.value_to_proto(value, space), space)
        assert space is None or repr(again) == repr(value)  # an info knows no tuples


def wire_space(data: bytes) -> None:
    """Reads a space; one that was read can be written and read again."""
    try:
        space = wire.space_from_proto(_message(space_pb2.Space, data))
    except ValueError:
        return
    again = wire.space_from_proto(wire.space_to_proto(space))
    assert repr(again) == repr(space) or isinstance(space, ToolSpace)


def wire_transition(data: bytes) -> None:
    """Reads a transition, as a client does."""
    space, rest = _choose(SPACES, data)
    with contextlib.suppress(ValueError):
        wire.transition_from_proto(_message(episode_pb2.Transition, rest), space)


def arguments(data: bytes) -> None:
    """Reads a JSON object; its canonical form is read as the same."""
    try:
        value = parse_object(_text(data))
    except (BadJson, BrokenJson):
        return
    written = canonical_json(value)
    if len(written) <= len(data):  # escapes may make it longer than what is read
        assert canonical_json(parse_object(written)) == written


def tools(data: bytes) -> None:
    """Reads argument text for a tool, strictly or not, and calls it."""
    (entry, tool), rest = _choose(TOOLS, data)
    rule, rest = _choose(RULES, rest)
    with contextlib.suppress(AgentFault):
        canonical_json(tool.read(_text(rest), rule).arguments)
    episode = Episode(EpisodeSpec(entry.env_id, None, {}, 1, rule=rule), entry.make())
    reply = episode.step(1, ToolCall(tool.name, _text(rest)))
    codec.reply_to_proto(reply, episode.env)


def answers(data: bytes) -> None:
    """Reads a model's answer under the JSON protocol."""
    with contextlib.suppress(AgentFault):
        protocol.parse(_text(data))


def options(data: bytes) -> None:
    """Reads reset options, and resets an environment with them."""
    entry, rest = _choose(ENTRIES, data)
    env = entry.make()
    with contextlib.suppress(BadOptions):
        given = codec.options_from_json(_text(rest))
        Episode(EpisodeSpec(entry.env_id, None, given, seed=1), env)
        if isinstance(env, ToolEnv):
            canonical_json(env.state())


def tasks(data: bytes) -> None:
    """Reads a file of tasks; what it makes of a line, it makes again of that task's row."""
    TASKS.write_bytes(data)
    for place, found in scan_tasks([TASKS]):
        assert place.startswith(str(TASKS))
        if isinstance(found, Task):
            assert Task.model_validate(parse_object(found.row())) == found
        else:
            assert isinstance(found, TaskError)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "log_segment": log_segment,
    "log_records": log_records,
    "replay": replayed,
    "resume": resumed,
    "wire_action": wire_action,
    "wire_value": wire_value,
    "wire_space": wire_space,
    "wire_transition": wire_transition,
    "arguments": arguments,
    "tools": tools,
    "protocol": answers,
    "options": options,
    "tasks": tasks,
}


def split(data: bytes) -> Iterator[bytes]:
    """Takes payloads out of bytes: two bytes of length before each; the last may be short."""
    while len(data) > 1:
        end = 2 + int.from_bytes(data[:2], "little")
        yield data[2:end]
        data = data[end:]


def _linked(payloads: Iterator[bytes]) -> Iterator[Record]:
    """Numbers and links the records of each session anew, as one who can write a log could."""
    chains: dict[str, Chain] = {}
    for payload in payloads:
        item = record(Frame(0, payload), SEGMENT)
        kind = None if isinstance(item, Damage) else item.event.WhichOneof("kind")
        if kind is None:
            continue
        event = item.event
        chain = chains.setdefault(event.session_id, Chain(event.session_id))
        linked = record(
            Frame(0, chain.record(event.episode_id, **{kind: getattr(event, kind)})), SEGMENT
        )
        assert isinstance(linked, Record)
        yield linked


async def _resume(records: list[Record]) -> None:
    session = await resume(records, REGISTRY, METRICS, HOSTS)
    session.player.drop_env()


def _write_log(data: bytes) -> None:
    SEGMENT.parent.mkdir(exist_ok=True)
    SEGMENT.write_bytes(data)


def _choose(choices: Any, data: bytes) -> tuple[Any, bytes]:
    """Lets the first byte choose."""
    return choices[next(itertools.chain(data, [0])) % len(choices)], data[1:]


def _message(kind: Any, data: bytes) -> Any:
    """Reads a message; bytes that are none stand for an empty one, as gRPC never hands them on."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return kind()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
