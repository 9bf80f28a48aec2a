"""The agent of chaos: what it does when, drawn from a seed, and how it does it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import hostile
from host import Broken, Host, SizeLimit, SmallDisk
from proxy import Proxy

SECONDS_EACH = 2.0
"""Between two events, on average."""

KINDS = (
    "kill the server",
    "drain the server",
    "freeze the server",
    "freeze clients",
    "cut connections",
    "silence connections",
    "delay packets",
    "throttle connections",
    "fill the disk",
    "send garbage",
    "dawdle on streams",
)
WORKER_KINDS = ("kill a worker",)


class Event(NamedTuple):
    """What is to happen, and when, in seconds from the start."""

    at: float
    kind: str


def plan(seed: int, seconds: float, workers: int) -> list[Event]:
    """Draws a plan in which everything happens about equally often, and at least once."""
    rng = random.Random(seed)
    kinds = [*KINDS, *(WORKER_KINDS if workers > 1 else ())]
    number = max(len(kinds), round(seconds / SECONDS_EACH))
    order: list[str] = []
    while len(order) < number:
        order += rng.sample(kinds, len(kinds))
    times = sorted(rng.uniform(0.05, 0.95) * seconds for _ in range(number))
    return [Event(at, kind) for at, kind in zip(times, order, strict=False)]


class Agent:
    """Carries out a plan.

    Attributes:
        counts: What it did.
        broken: What the server did wrong meanwhile.
    """

    def __init__(
        self,
        host: Host,
        proxy: Proxy,
        disk: SmallDisk | SizeLimit,
        clients: Sequence[asyncio.subprocess.Process],
        seed: int,
    ) -> None:
        """Does nothing yet."""
        self._host = host
        self._proxy = proxy
        self._disk = disk
        self._clients = clients
        self._rng = random.Random(seed + 1)
        self._server_is_free = asyncio.Lock()  # one at a time may start and stop it
        self._begun = time.monotonic()
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    async def carry_out(self, events: Sequence[Event]) -> None:
        """Does each thing when its time comes, and waits for the end of the last."""
        self._begun = time.monotonic()
        running: list[asyncio.Task[None]] = []
        for event in events:
            await asyncio.sleep(max(0.0, self._begun + event.at - time.monotonic()))
            running.append(asyncio.create_task(self._do(event.kind)))
        await asyncio.gather(*running)

    async def _do(self, kind: str) -> None:
        work = {
            "kill the server": self._kill,
            "kill a worker": self._kill_worker,
            "drain the server": self._drain,
            "freeze the server": self._freeze_server,
            "freeze clients": self._freeze_clients,
            "cut connections": self._cut,
            "silence connections": self._silence,
            "delay packets": self._delay,
            "throttle connections": self._throttle,
            "fill the disk": self._fill_disk,
            "send garbage": self._send_garbage,
            "dawdle on streams": self._dawdle,
        }[kind]
        try:
            await work()
        except Broken as e:
            self.broken.append(f"{kind}: {e}")
            self._say(f"{kind}: {e}")

    async def _kill(self) -> None:
        async with self._server_is_free:
            pid = self._host.pid
            await self._host.kill()
            self._did("kill the server", f"kill -9 {pid}, and start it again")
            await self._host.start()

    async def _kill_worker(self) -> None:
        async with self._server_is_free:
            pid = self._host.kill_worker(self._rng.randrange(100))
            self._did("kill a worker", f"kill -9 {pid}")
            await asyncio.sleep(1)  # told to end just now, the server would say how this one ended

    async def _drain(self) -> None:
        async with self._server_is_free:
            self._did("drain the server", f"SIGTERM to {self._host.pid}, and start it again")
            begun = time.monotonic()
            try:
                await self._host.drain()
                self._say(f"  drained within {time.monotonic() - begun:.1f} s, exit code 0")
            finally:
                await self._host.start()

    async def _freeze_server(self) -> None:
        async with self._server_is_free:
            seconds = self._rng.uniform(0.5, 2)
            self._did("freeze the server", f"SIGSTOP for {seconds:.1f} s")
            self._host.send(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            self._host.send(signal.SIGCONT)

    async def _freeze_clients(self) -> None:
        process, seconds = self._rng.choice(self._clients), self._rng.uniform(1, 4)
        self._did("freeze clients", f"SIGSTOP to client process {process.pid}, {seconds:.1f} s")
        os.kill(process.pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(process.pid, signal.SIGCONT)

    async def _cut(self) -> None:
        self._did("cut connections", f"{self._proxy.cut()} of them")

    async def _silence(self) -> None:
        self._did("silence connections", f"{self._proxy.silence()} of them are half open now")

    async def _delay(self) -> None:
        self._did("delay packets", "each by 0.2 s, for 2 s")
        self._proxy.delay_seconds = 0.2
        await asyncio.sleep(2)
        self._proxy.delay_seconds = 0.0

    async def _throttle(self) -> None:
        self._did("throttle connections", "each to 2,000 bytes a second, for 2 s")
        self._proxy.bytes_per_second = 2_000.0
        await asyncio.sleep(2)
        self._proxy.bytes_per_second = 0.0

    async def _fill_disk(self) -> None:
        async with self._server_is_free:  # a server that starts needs a disk
            seconds, pids = self._rng.uniform(0.5, 2), self._host.pids()
            self._did("fill the disk", f"for {seconds:.1f} s")
            self._disk.fill(pids)
            await asyncio.sleep(seconds)
            self._disk.free(pids)

    async def _send_garbage(self) -> None:
        sockets = self._rng.randint(20, 60)
        self._did("send garbage", f"over {sockets} connections")
        await hostile.send_garbage(self._host.address, sockets, self._rng)

    async def _dawdle(self) -> None:
        streams = self._rng.randint(20, 80)
        self._did("dawdle on streams", f"on {streams} of them")
        await hostile.dawdle(self._host.address, streams)

    def _did(self, kind: str, how: str) -> None:
        self.counts[kind] += 1
        self._say(f"{kind}: {how}")

    def _say(self, text: str) -> None:
        at = time.strftime("%H:%M:%S")
        print(f"{at}  {time.monotonic() - self._begun:5.1f} s  {text}", flush=True)
