"""Chaos: clients play while everything around them breaks, and nothing may be lost: `make chaos`.

A server is started through the real command line, clients in a few processes play against it
through a bad network, and an agent of chaos carries out a plan drawn from a seed: it kills and
drains the server, freezes it and the clients, cuts and silences connections, fills the disk, and
sends garbage. Then it must hold that each acknowledged step is in the log once, that the log
replays to the bit, that no client saw another's state or hung, and that the server stayed small.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import host
import proxy as proxies
from agent import Agent, plan
from checks import SHOWN, Found, check

from env_server.registry import Registry

HERE = Path(__file__).parent
PROCESSES = 4
END_SECONDS = 120.0
MAX_MB = 700.0
"""Of one worker, with 200 clients."""

MAX_FILES = 1_500
MAX_FILES_AT_REST = 60


class Run:
    """One run, and what it found.

    Attributes:
        broken: What broke.
        table: What was done, by topic.
    """

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        """Begins nothing yet."""
        self._given = given
        self._folder = folder
        self.broken: list[str] = []
        self.table: dict[str, dict[str, Any]] = {}

    async def play(self, disk: host.SmallDisk | host.SizeLimit) -> None:
        """Lets the clients play through the plan, and stops everything."""
        given = self._given
        messages = self._folder / "server.log"
        server = host.Host(self._folder / "log", messages, given.workers, proxies.HOST)
        clients: list[asyncio.subprocess.Process] = []
        try:
            await server.start()
            await self._play(server, clients, disk)
            await self._end_server(server)
        finally:
            for process in clients:
                if process.returncode is None:
                    process.kill()
            await server.kill()
        self.broken += server.exits

    async def _play(
        self,
        server: host.Host,
        clients: list[asyncio.subprocess.Process],
        disk: host.SmallDisk | host.SizeLimit,
    ) -> None:
        given = self._given
        proxy = proxies.Proxy(random.Random(given.seed))
        await proxy.start(host.HOST, server.ports)
        clients += await self._start_clients(f"{proxies.HOST}:{server.ports[0]}")
        agent = Agent(server, proxy, disk, clients, given.seed)
        watch = asyncio.create_task(server.watch())
        proxy.worsen()
        await agent.carry_out(plan(given.seed, given.seconds, given.workers))
        proxy.calm()
        await self._end_clients(clients)
        await proxy.close()
        watch.cancel()
        self.broken += agent.broken
        self.table["chaos"] = {**agent.counts, "the disk": disk.name}
        self.table["network"] = dict(proxy.counts)

    async def _start_clients(self, address: str) -> list[asyncio.subprocess.Process]:
        started, first = [], 0
        for left in range(PROCESSES, 0, -1):
            count = (self._given.clients - first) // left
            words = ["--address", address, "--folder", self._folder, "--seed", self._given.seed]
            words += ["--first", first, "--count", count]
            command = [sys.executable, "-X", "faulthandler", HERE / "players.py", *words]
            with (self._folder / f"client-{first:04}.log").open("wb") as messages:
                started.append(
                    await asyncio.create_subprocess_exec(*map(str, command), stderr=messages)
                )
            first += count
        return started

    async def _end_clients(self, clients: list[asyncio.subprocess.Process]) -> None:
        """Lets the clients finish, each within its deadline, and reads their reports."""
        begun = time.monotonic()
        for process in clients:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            else:
                self.broken.append(f"client process {process.pid} ended: {process.returncode}")
        for process in clients:
            try:
                await asyncio.wait_for(process.wait(), END_SECONDS)
            except TimeoutError:
                process.kill()
                self.broken.append(f"client process {process.pid} hung")
        totals: dict[str, Counter[str]] = {"counts": Counter(), "errors": Counter()}
        for path in sorted(self._folder.glob("report-*.json")):
            report = json.loads(path.read_text())
            for name, counter in totals.items():
                counter.update(report[name])
            self.broken += report["broken"] + [f"{name} hung" for name in report["hung"]]
        self.table["clients"] = dict(totals["counts"])
        self.table["clients"]["seconds to finish"] = round(time.monotonic() - begun, 1)
        self.table["calls made again after"] = dict(totals["errors"])

    async def _end_server(self, server: host.Host) -> None:
        """Checks the server's size, with clients and without, and drains it."""
        await asyncio.sleep(1)
        _, files = server.size()
        workers = self._given.workers
        self.table["server"] = {
            "peak MB": round(server.peak_mb),
            "peak open files": server.peak_files,
            "open files at rest": files,
        }
        for what, got, most in (
            ("memory in MB", server.peak_mb, MAX_MB * workers),
            ("open files", server.peak_files, MAX_FILES * workers),
            ("open files when all clients had gone", files, MAX_FILES_AT_REST * (workers + 1)),
        ):
            if got > most:
                self.broken.append(f"server: {what}: expected at most {most:g}, got {got:g}")
        try:
            await server.drain()
        except host.Broken as e:
            self.broken.append(str(e))

    def verify(self, log_dir: Path) -> None:
        """Checks the log against the journals."""
        begun = time.monotonic()
        journals = sorted(self._folder.glob("journal-*.jsonl"))
        found: Found = check(log_dir, journals, Registry())
        self.broken += found.broken
        self.table["log"] = {
            "episodes": found.episodes,
            **found.outcomes,
            "steps": found.steps,
            "steps without a reply that was seen": found.unacknowledged,
            "seconds to replay": round(time.monotonic() - begun, 1),
        }
        self.table["ends"] = dict(found.ends)
        steps = self.table["clients"].get("steps acknowledged", 0)
        if not steps or "fill the disk" not in self.table["chaos"]:
            self.broken.append("nothing was tested")

    def show(self) -> None:
        """Prints what was done, and PASS or what broke."""
        for topic, rows in self.table.items():
            print(f"\n{topic}")
            for name, value in rows.items():
                shown = f"{value:,}" if isinstance(value, int) else value
                print(f"  {name:40} {shown:>12}")
        for text in self.broken[:SHOWN]:
            print(f"\nBROKEN  {text}")
        if len(self.broken) > SHOWN:
            print(f"\n... and {len(self.broken) - SHOWN} more")
        given = self._given
        what = f"{given.clients} clients, {given.seconds:g} s, seed {given.seed}"
        what += f", {given.workers} worker{'s' * (given.workers > 1)}"
        print(f"\n{'FAIL' if self.broken else 'PASS'}: {what}", flush=True)


def main() -> int:
    """Runs it, and says what broke; 1 where something did."""
    given = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="railgym-chaos-"))
    run = Run(given, folder)
    with host.disk(folder / "log", folder / "kept-log") as disk:
        asyncio.run(run.play(disk))
    run.verify(folder / "kept-log")
    run.show()
    if run.broken:
        print(f"the log, the journals and all messages are in {folder}")
        return 1
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of chaos; default: 60")
    parser.add_argument("--clients", type=int, default=200, help="default: 200")
    parser.add_argument("--seed", type=int, default=1, help="of the plan; default: 1")
    parser.add_argument("--workers", type=int, default=2, help="of the server; default: 2")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
