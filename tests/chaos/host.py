"""The server under test: started through the real command line, killed, drained, frozen, watched.

And the disk of its log, which can be filled and freed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

HOST = "127.0.0.1"
START_SECONDS = 60
DRAIN_SECONDS = 30
LEASE_SECONDS = 180
MIN_FREE_MB = 16
DISK_BYTES = 256 * 1024 * 1024


class Broken(Exception):
    """The server did not do what it should."""


class Host:
    """One server, started again and again at one address and on one log.

    Attributes:
        ports: The one that all workers share, and one for each worker where there are more.
        exits: Ends that nobody asked for.
        peak_mb: Most memory that its processes held together, in MB.
        peak_files: Most files and sockets that they held open.
    """

    def __init__(self, log_dir: Path, messages: Path, workers: int, seen_at: str) -> None:
        """Starts nothing yet.

        Args:
            log_dir: Of the episode log.
            messages: The file for what it writes on stderr.
            workers: How many.
            seen_at: The host by which clients reach its workers.
        """
        self.ports = _free_ports(workers + 1 if workers > 1 else 1)
        self.exits: list[str] = []
        self.peak_mb = 0.0
        self.peak_files = 0
        self._log_dir = log_dir
        self._messages = messages
        self._workers = workers
        self._seen_at = seen_at
        self._min_free = itertools.cycle([0, MIN_FREE_MB])
        self._process: asyncio.subprocess.Process | None = None
        self._ended = False  # as it was asked to

    @property
    def address(self) -> str:
        """Where clients begin, "host:port", when nothing is between."""
        return f"{HOST}:{self.ports[0]}"

    @property
    def pid(self) -> int:
        """Of the process that was started; its workers are children of it."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Starts it, and waits until it serves.

        Raises:
            Broken: It does not.
        """
        words = ["-m", "env_server.cli", "serve", "--address", self.address]
        words += ["--log-dir", str(self._log_dir), "--lease", str(LEASE_SECONDS)]
        words += ["--log-format", "json", "--log-level", "warning"]
        # In turn it meets a disk that is full, and one that is nearly so.
        words += ["--min-free-disk", str(next(self._min_free))]
        if self._workers > 1:
            words += ["--workers", str(self._workers), "--advertise", self._seen_at]
        with self._messages.open("ab") as messages:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *words, stdout=asyncio.subprocess.PIPE, stderr=messages
            )
        self._ended = False
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS)
        except TimeoutError:
            raise Broken(f"the server did not start within {START_SECONDS} s") from None
        if b"serves on" not in line:
            raise Broken(f"the server did not start: exit code {await self._process.wait()}")

    async def kill(self) -> None:
        """Kills it and its workers, and waits for their end. One that has ended stays so."""
        if self._process is None or self._ended:
            return
        self._note_exit()
        _signal(self.pid, signal.SIGSTOP)
        await asyncio.sleep(0.1)  # from here on it starts no worker that would be left alive
        self.send(signal.SIGKILL)
        await self._process.wait()
        self._ended = True

    def kill_worker(self, number: int) -> int:
        """Kills one of its workers, and gives its process id."""
        workers = _children(self.pid)
        if not workers:
            raise Broken("the server has no workers")
        pid = workers[number % len(workers)]
        _signal(pid, signal.SIGKILL)
        return pid

    async def drain(self) -> None:
        """Asks it to end, as an operator does.

        Raises:
            Broken: It does not end in time, or not with 0.
        """
        self._note_exit()
        _signal(self.pid, signal.SIGTERM)
        try:
            code = await asyncio.wait_for(self._process.wait(), DRAIN_SECONDS)
        except TimeoutError:
            await self.kill()
            raise Broken(f"SIGTERM: the server did not end within {DRAIN_SECONDS} s") from None
        self._ended = True
        if code != 0:
            raise Broken(f"SIGTERM: expected exit code 0, got {code}")

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to all of its processes."""
        for pid in self.pids():  # the supervisor first, lest it starts dead workers again
            _signal(pid, number)

    def pids(self) -> list[int]:
        """Its processes."""
        return [self.pid, *_children(self.pid)]

    async def watch(self) -> None:
        """Notes how large it becomes, and ends that nobody asked for, until it is cancelled."""
        while True:
            mb, files = self.size()
            self.peak_mb, self.peak_files = max(self.peak_mb, mb), max(self.peak_files, files)
            await asyncio.sleep(0.2)

    def size(self) -> tuple[float, int]:
        """Memory in MB and open files, of all of its processes."""
        kilobytes = files = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):  # it may be gone meanwhile
                found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
                kilobytes += int(found[1]) if found else 0
                files += len(os.listdir(f"/proc/{pid}/fd"))
        return kilobytes / 1024, files

    def _note_exit(self) -> None:
        """Notes that it had ended before anybody asked for it."""
        if self._process.returncode is not None:
            self.exits.append(f"the server ended by itself: exit code {self._process.returncode}")


class Disk(Protocol):
    """Where the log is."""

    def fill(self, pids: list[int]) -> None:
        """Lets nothing more be written by these processes."""

    def free(self, pids: list[int]) -> None:
        """Lets everything be written again."""


class SmallDisk:
    """A file system of its own in memory, filled with a file."""

    name = f"a tmpfs of {DISK_BYTES >> 20} MB, filled by a file"

    def __init__(self, folder: Path) -> None:
        """Takes a mounted folder."""
        self._ballast = folder / "ballast"

    def fill(self, pids: list[int]) -> None:
        """Writes a file until there is no space left."""
        with self._ballast.open("wb", buffering=0) as file:
            block = bytes(1024 * 1024)
            while block:
                try:
                    file.write(block)
                except OSError as e:
                    if e.errno != errno.ENOSPC:
                        raise
                    block = block[: len(block) // 2]

    def free(self, pids: list[int]) -> None:
        """Removes that file."""
        self._ballast.unlink(missing_ok=True)


class SizeLimit:
    """A limit of the kernel on the size of the server's files, where nothing can be mounted."""

    name = "RLIMIT_FSIZE of the server, set below the size of its segment"

    def fill(self, pids: list[int]) -> None:
        """Sets the limit."""
        self._limit(pids, 1)

    def free(self, pids: list[int]) -> None:
        """Lifts the limit."""
        self._limit(pids, resource.RLIM_INFINITY)

    def _limit(self, pids: list[int], limit: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))


@contextlib.contextmanager
def disk(folder: Path, kept: Path) -> Iterator[SmallDisk | SizeLimit]:
    """Mounts a small disk at a folder, or limits files where that is not allowed.

    Args:
        folder: Made here.
        kept: Where what stands on the disk is copied to before it is gone.
    """
    folder.mkdir()
    size = f"size={DISK_BYTES}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True).returncode
    try:
        yield SmallDisk(folder) if mounted else SizeLimit()
    finally:
        shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("ballast"))
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return sorted(found)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _free_ports(number: int) -> list[int]:
    """Ports in a row, below those that connections take for themselves."""
    while True:
        first = random.randrange(20_000, 32_000)
        ports = list(range(first, first + number))
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in ports:
                held.enter_context(socket.socket()).bind((HOST, port))
            return ports
