"""Where fuzzing begins: real inputs of each target, and random changes to them.

They are made of the golden logs, the bundled tasks and their gold.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from targets import REGISTRY, SPACES

from env_server.log import Record, frames, read
from env_server.log.frames import Frame, scan
from env_server.tasks import GoldCall, bundled_folder, bundled_tasks
from railgym import codec

GOLDEN = Path(__file__).absolute().parents[1] / "golden"
MAX_BYTES = 16_384
EACH = 60
"""Seeds of one kind."""

WORDS = [b"\xffRGL", b"\0", b"\xff" * 8, b"{", b'"', b"[" * 70, b"1e400", b"NaN", b"-0.0", b"null"]


@cache
def seeds(target: str) -> list[bytes]:
    """Real inputs of a target."""
    found = {
        "log_segment": _segments,
        "log_records": _sessions,
        "replay": _sessions,
        "resume": _sessions,
        "wire_action": lambda: _chosen(_actions()),
        "wire_value": _values,
        "wire_space": _spaces,
        "wire_transition": lambda: _chosen(_transitions()),
        "arguments": _arguments,
        "tools": lambda: (bytes([i, i % 2]) + one for i in range(60) for one in _arguments()),
        "protocol": _answers,
        "options": lambda: _chosen(_options()),
        "tasks": _tasks,
    }[target]()
    spread = [one for one in found if len(one) <= MAX_BYTES]
    return random.Random(target).sample(spread, min(EACH, len(spread)))


def mutate(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Changes an input in one to four places."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randint(0, len(changed))
        match rng.randrange(6):
            case 0 if changed:
                changed[place % len(changed)] ^= 1 << rng.randrange(8)
            case 1:
                del changed[place : place + rng.randint(1, 16)]
            case 2:
                changed[place:place] = rng.choice(WORDS)
            case 3:
                changed[place:place] = rng.randbytes(rng.randint(1, 8))
            case 4:
                changed[place:place] = changed[place : place + rng.randint(1, 64)]
            case _:
                other = rng.choice(others)
                cut = rng.randint(0, len(other))
                changed[place:] = other[cut:]
    return bytes(changed[:MAX_BYTES])


def _records() -> Iterator[Record]:
    for folder in sorted(path for path in GOLDEN.iterdir() if path.is_dir()):
        yield from (item for item in read(folder) if isinstance(item, Record))


def _payloads() -> dict[str, list[bytes]]:
    """The payloads of each golden session."""
    sessions: dict[str, list[bytes]] = {}
    for item in _records():
        payload = item.event.SerializeToString()
        sessions.setdefault(item.event.session_id, []).append(payload)
    return sessions


def _segments() -> Iterator[bytes]:
    for path in sorted(GOLDEN.glob("*/*.rgl")):
        payloads = [item.payload for item in scan(path) if isinstance(item, Frame)]
        for start in range(0, len(payloads), 8):
            yield b"".join(map(frames.encode, payloads[start : start + 8]))


def _sessions() -> Iterator[bytes]:
    for payloads in _payloads().values():
        if max(map(len, payloads)) < 65_536:
            yield b"".join(len(one).to_bytes(2, "little") + one for one in payloads)


def _actions() -> Iterator[bytes]:
    for item in _records():
        if item.event.HasField("step_taken"):
            yield item.event.step_taken.action.SerializeToString()


def _transitions() -> Iterator[bytes]:
    for item in _records():
        if item.event.HasField("step_taken"):
            yield item.event.step_taken.transition.SerializeToString()


def _values() -> Iterator[bytes]:
    for number, space in enumerate(SPACES):
        if space is not None:
            space.seed(number)
            for _ in range(4):
                value = codec.value_to_proto(space.sample(), space).SerializeToString()
                yield bytes([number]) + value
    for item in _records():
        for value in item.event.step_taken.transition.info.values():
            yield bytes([0]) + value.SerializeToString()


def _spaces() -> Iterator[bytes]:
    for space in SPACES:
        if space is not None:
            yield codec.space_to_proto(space).SerializeToString()
    for entry in REGISTRY.envs.values():
        env = entry.make()
        yield codec.space_to_proto(env.action_space).SerializeToString()
        yield codec.space_to_proto(env.observation_space).SerializeToString()


def _arguments() -> Iterator[bytes]:
    for item in _records():
        action = item.event.step_taken.action
        if action.HasField("tool_call"):
            yield action.tool_call.arguments_json.encode()
    for task in bundled_tasks().values():
        for call in task.gold:
            if isinstance(call, GoldCall):
                yield json.dumps(call.arguments).encode()


def _answers() -> Iterator[bytes]:
    for task in bundled_tasks().values():
        for call in task.gold:
            if isinstance(call, GoldCall):
                answer = {"thought": "", "action": call.tool, "action_input": call.arguments}
                yield json.dumps(answer).encode()
            else:
                yield json.dumps({"action": "final", "action_input": call.final}).encode()


def _options() -> Iterator[bytes]:
    for task in bundled_tasks().values():
        yield json.dumps(task.options).encode()


def _tasks() -> Iterator[bytes]:
    for path in sorted(bundled_folder().rglob("*.jsonl")):
        yield from (line for line in path.read_bytes().splitlines(keepends=True))


def _chosen(seeds: Iterable[bytes]) -> Iterator[bytes]:
    """Puts a byte before each seed, with which a target chooses a space or an environment."""
    return (bytes([number % 12]) + seed for number, seed in enumerate(seeds))
