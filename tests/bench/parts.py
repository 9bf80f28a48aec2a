"""The parts of the bench besides the contest: scoring by replay, and memory.

Each gives rows of figures and targets.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import grpc
from drive_railgym import ACTIONS
from paper import STEPS, TARGET
from processes import railgym
from targets import Row

from env_server import codec
from env_server.codec import started_event
from env_server.episode import Episode, EpisodeSpec
from env_server.gold import play_gold
from env_server.log import Chain, LogWriter
from env_server.registry import Registry
from env_server.scoring.score import score_log
from railgym import codec as wire
from railgym.actions import Final, ToolCall
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

TYPEWRITER = "railgym/Typewriter-v1"
RELATIONAL = "railgym/Relational-v1"
READING = episode_pb2.Action(
    tool_call=episode_pb2.ToolCall(name="get_current_user_id", arguments_json="{}")
)


def replay(quick: bool) -> list[Row]:
    """Scoring by replay, with validation and state hashes, in one process."""
    steps = 10_000 if quick else 100_000
    registry = Registry()
    rows = []
    for env, least, write in (
        ("typewriter", 40_000, _write_typewriter),
        ("relational", 5_000, _write_relational),
    ):
        with tempfile.TemporaryDirectory() as folder:
            wanted = steps if env == "typewriter" else steps // 5
            written = write(Path(folder), registry, wanted)
            list(score_log(Path(folder), registry))  # caches of worlds and gold, and the disk's
            rates = []
            for _ in range(3):
                begin = time.process_time()  # one core's time, whatever else the machine does
                scores = list(score_log(Path(folder), registry))
                rates.append(written / (time.process_time() - begin))
            assert all(score.outcome == "VERIFIED" for score in scores)
        rate = statistics.median(rates)
        rows.append(
            Row(f"replay: {env}", rate, "steps/s of one core", f"≥ {least:,}", rate >= least)
        )
    return rows


def memory(quick: bool) -> list[Row]:
    """Server memory of an open session, from the growth of its resident set."""
    rows = []
    for env_id, count, most in ((RELATIONAL, 1_000, 200), (TYPEWRITER, 5_000, 40)):
        count = count // 10 if quick else count
        with tempfile.TemporaryDirectory() as folder, railgym(folder) as (process, address):
            asyncio.run(_open_sessions(address, env_id, 50))
            before = process.resident_kb()
            asyncio.run(_open_sessions(address, env_id, count))
            size = (process.resident_kb() - before) / count
        name = f"memory: one of {count:,} sessions of {env_id}"
        rows.append(Row(name, size, "KB", f"< {most}", size < most))
    return rows


def capacity(quick: bool) -> list[Row]:
    """All of a server's memory with 10,000 typewriter and 2,000 relational sessions open."""
    share = 10 if quick else 1
    with tempfile.TemporaryDirectory() as folder, railgym(folder) as (process, address):
        asyncio.run(_open_sessions(address, TYPEWRITER, 10_000 // share))
        asyncio.run(_open_sessions(address, RELATIONAL, 2_000 // share))
        megabytes = process.resident_kb() / 1024
    name = f"memory: {10_000 // share:,} typewriter and {2_000 // share:,} relational sessions"
    return [Row(name, megabytes, "MB in all", "< 1,000", megabytes < 1_000)]


def _write_typewriter(folder: Path, registry: Registry, steps: int) -> int:
    written = 0
    with LogWriter(folder) as writer:
        while written < steps:
            target = TARGET[:STEPS]
            spec = EpisodeSpec(TYPEWRITER, None, {"target": target}, seed=written)
            env = registry.env(spec.env_id).make()
            calls = [ToolCall("type_letter", f'{{"letter": "{letter}"}}') for letter in target]
            written += _log_episode(writer, registry, Episode(spec, env), calls, str(written))
    return written


def _write_relational(folder: Path, registry: Registry, steps: int) -> int:
    tasks = [task for task in registry.tasks.values() if task.env_id == RELATIONAL]
    golds = [(task, play_gold(task, registry)[0].actions) for task in tasks]
    written = 0
    with LogWriter(folder) as writer:
        while written < steps:
            for task, actions in golds:
                env = registry.env(task.env_id).make()
                episode = Episode(EpisodeSpec(task.env_id, task, task.options), env)
                key = f"{written}-{task.task_id}"
                written += _log_episode(writer, registry, episode, actions, key)
    return written


def _log_episode(
    writer: LogWriter,
    registry: Registry,
    episode: Episode,
    actions: list[ToolCall | Final],
    session_id: str,
) -> int:
    entry = registry.env(episode.spec.env_id)
    chain, episode_id = Chain(session_id), f"{session_id}.1"
    opened = episode_pb2.SessionOpened(env_id=entry.env_id)
    payloads = [chain.record(session_opened=opened)]
    started = started_event(episode, entry, {})
    payloads.append(chain.record(episode_id, episode_started=started))
    for number, action in enumerate(actions, start=1):
        reply = episode.step(number, action)
        taken = episode_pb2.StepTaken(
            step=number,
            action=wire.action_to_proto(action),
            transition=codec.reply_to_proto(reply, episode.env),
        )
        payloads.append(chain.record(episode_id, step_taken=taken))
    ended = episode_pb2.EpisodeEnded(
        reason=wire.end_reason_to_proto(episode.end), state_hash=episode.state_hash
    )
    payloads.append(chain.record(episode_id, episode_ended=ended))
    writer.append(payloads)
    return episode.latest


async def _open_sessions(address: str, env_id: str, count: int) -> None:
    """Opens sessions, each with an episode that has come to its first step."""
    action = READING if env_id == RELATIONAL else ACTIONS[0]
    async with grpc.aio.insecure_channel(address) as channel:
        envs = EnvServiceStub(channel)
        for _ in range(count):
            asked = pb.CreateSessionRequest(env_id=env_id)
            session_id = (await envs.CreateSession(asked)).session_id
            await envs.Reset(pb.ResetRequest(session_id=session_id, seed=0))
            await envs.Step(pb.StepRequest(session_id=session_id, step=1, action=action))
