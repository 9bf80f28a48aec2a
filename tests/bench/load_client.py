"""One client process of the load: many sessions, half of them unary, half on streams of their own.

    python load_client.py ADDRESS PLAN_JSON REPORT_FILE

Each session opens at a time of its own within the ramp, thinks before each step, and compares each
reply with its script. Once a second the process says on stdout how far it is; at the end it writes
a report. It knows nothing of the server but its address.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from scripts import Line, Script, kind_of, script_for

from railgym.errors import from_rpc_error
from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
"""Else all channels of a process to one address share a connection."""

DEADLINE = 30.0
"""Seconds that a reply may take."""


class Plan(NamedTuple):
    """What the whole load is. `first` and `step` say which sessions are this process's."""

    connections: int

    sessions: int
    first: int
    step: int
    ramp: float
    seconds: float
    think: float
    seed: int


class Broke(Exception):
    """A session cannot go on. The text is the reason, for counting."""


class Unary:
    """A session by unary calls."""

    how = "unary"

    def __init__(self, envs: EnvServiceStub) -> None:
        self._envs = envs
        self.session_id = ""

    async def open(self, script: Script) -> None:
        asked = pb.CreateSessionRequest(env_id=script.env_id)
        self.session_id = (await self._envs.CreateSession(asked, timeout=DEADLINE)).session_id

    async def reset(self, script: Script) -> Any:
        asked = pb.ResetRequest(
            session_id=self.session_id, seed=script.seed, options_json=script.options_json
        )
        return await self._envs.Reset(asked, timeout=DEADLINE)

    async def step(self, number: int, line: Line) -> Any:
        asked = pb.StepRequest(session_id=self.session_id, step=number, action=line.action)
        return (await self._envs.Step(asked, timeout=DEADLINE)).transition

    async def close(self) -> None:
        asked = pb.CloseSessionRequest(session_id=self.session_id)
        await self._envs.CloseSession(asked, timeout=DEADLINE)


class Stream:
    """A session on a Rollout stream of its own."""

    how = "stream"

    def __init__(self, envs: EnvServiceStub) -> None:
        self._envs = envs
        self.session_id = ""

    async def open(self, script: Script) -> None:
        self._stream = self._envs.Rollout()
        session = pb.CreateSessionRequest(env_id=script.env_id)
        opening = pb.RolloutOpen(session=session, autoreset_mode=pb.AUTORESET_MODE_DISABLED)
        self.session_id = (await self._row(open=opening)).opened.session_id

    async def reset(self, script: Script) -> Any:
        asked = pb.RolloutReset(seed=script.seed, options_json=script.options_json)
        return (await self._row(reset=asked)).reset

    async def step(self, number: int, line: Line) -> Any:
        stepped = (await self._row(step=pb.RolloutStep(action=line.action))).stepped
        if stepped.step != number:
            raise Broke(f"stream: expected step {number}, got {stepped.step}")
        return stepped.transition

    async def close(self) -> None:
        await self._row(close=pb.RolloutClose())
        await self._stream.done_writing()
        if await asyncio.wait_for(self._stream.read(), DEADLINE) is not grpc.aio.EOF:
            raise Broke("stream: a reply that nobody asked for")

    async def _row(self, **kind: Any) -> pb.RolloutOutcome:
        try:
            await self._stream.write(pb.RolloutRequest(rows=[pb.RolloutAction(**kind)]))
        except asyncio.InvalidStateError:
            raise Broke(f"stream: {await self._stream.code()}") from None
        reply = await asyncio.wait_for(self._stream.read(), DEADLINE)
        if reply is grpc.aio.EOF:
            raise Broke("stream: ended by the server")
        outcome = reply.rows[0]
        if outcome.HasField("error"):
            raise Broke(f"row: {pb.ErrorReason.Name(outcome.error.reason)}")
        return outcome


class Load:
    """The sessions of this process, and what they have seen."""

    def __init__(self, plan: Plan, connections: Sequence[EnvServiceStub]) -> None:
        self.plan = plan
        self.open = 0
        self.steps = 0
        self.errors: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.latencies: dict[str, list[int]] = defaultdict(list)
        self.acknowledged: dict[str, list[tuple[int, str]]] = {}
        self._connections = connections
        self._steady = time.monotonic() + plan.ramp
        self._end = self._steady + plan.seconds

    async def run(self) -> None:
        """Plays all sessions to the end."""
        plan = self.plan
        numbers = range(plan.first, plan.sessions, plan.step)
        scripts = {
            n: script_for(kind_of(n, plan.sessions), n // plan.step, plan.seed) for n in numbers
        }
        gc.disable()  # or this process's own pauses would be measured
        now = time.monotonic()
        self._steady, self._end = now + plan.ramp, now + plan.ramp + plan.seconds
        telling = asyncio.create_task(self._tell())
        await asyncio.gather(*[self._session(n, script) for n, script in scripts.items()])
        telling.cancel()

    async def _session(self, number: int, script: Script) -> None:
        rng = random.Random(f"{self.plan.seed} thinks {number}")
        place = number // self.plan.step
        player = (Unary, Stream)[place % 2](self._connections[place // 2 % len(self._connections)])
        await asyncio.sleep(rng.random() * self.plan.ramp)
        try:
            await player.open(script)
            self.open += 1
            while time.monotonic() < self._end:
                await self._episode(player, script, rng)
            await asyncio.sleep(rng.random() * self.plan.ramp / 3)
            await player.close()
        except grpc.aio.AioRpcError as e:
            error = from_rpc_error(e)
            self.errors[f"{player.how}: {error.code} {error.reason or e.details()}"] += 1
        except TimeoutError:
            self.errors[f"{player.how}: no reply within {DEADLINE:g} s"] += 1
        except Broke as e:
            self.errors[str(e)] += 1

    async def _episode(self, player: Unary | Stream, script: Script, rng: random.Random) -> None:
        reset = await player.reset(script)
        self._compare(player, "reset", script.observation, reset.observation.json)
        episodes = self.acknowledged.setdefault(player.session_id, [])
        episodes.append((0, reset.state_hash.hex()))
        for number, line in enumerate(script.lines, start=1):
            thinks = rng.expovariate(1 / self.plan.think)
            await asyncio.sleep(min(thinks, max(0.0, self._end - time.monotonic())))
            sent = time.monotonic()
            if sent >= self._end:
                return
            reply = await player.step(number, line)
            if sent >= self._steady:
                taken = round((time.monotonic() - sent) * 1e6)
                self.latencies[f"{script.kind} {player.how}"].append(taken)
            self.steps += 1
            episodes[-1] = number, reply.state_hash.hex()
            seen = reply.observation.json, reply.state_hash
            self._compare(player, number, (line.observation, line.state_hash), seen)

    def _compare(self, player: Unary | Stream, where: object, expected: Any, seen: Any) -> None:
        if seen != expected:
            self.wrong.append(f"{player.session_id} {where}: expected {expected}, got {seen}")

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(1)
            errors = self.errors.total() + len(self.wrong)
            print(
                json.dumps({"open": self.open, "steps": self.steps, "errors": errors}), flush=True
            )


async def main() -> None:
    address, plan, report = sys.argv[1], Plan(**json.loads(sys.argv[2])), Path(sys.argv[3])
    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, OWN_CONNECTION))
            for _ in range(plan.connections)
        ]
        load = Load(plan, [EnvServiceStub(channel) for channel in channels])
        await load.run()
    found = {
        "opened": load.open,
        "steps": load.steps,
        "errors": load.errors,
        "wrong": load.wrong,
        "latencies": load.latencies,
        "acknowledged": load.acknowledged,
    }
    report.write_text(json.dumps(found))
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
