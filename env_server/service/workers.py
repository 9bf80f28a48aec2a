"""Several workers behind one address: a supervisor that starts them, and starts dead ones again.

Each worker is a process of its own with an endpoint of its own, and all of them also listen on the
front address, where the kernel deals out connections (SO_REUSEPORT). The supervisor takes part in
no call: it knows no gRPC, no session and no log.

It holds every port by a socket that does not listen, so that a port in use is found out at once,
and is still free for a worker that is started again. Standard input and output of a worker are one
socket to the supervisor: by it a worker says that it serves, and when it breaks, the worker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from asyncio.subprocess import Process
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import structlog

SETTLED_SECONDS = 10.0
"""A worker that lived so long and then dies is started again at once."""

LEAST_PAUSE = 0.25
MOST_PAUSE = 30.0
"""Between the starts of one that dies soon, doubled each time."""

KILL_SECONDS = 5.0
"""Over the time of grace, until a worker that has been told to end is killed."""

KILLED = 1
"""The exit code for a worker that a signal has ended."""

log = structlog.get_logger()


class CannotReserve(OSError):
    """An address is in use, or not one of this machine."""


class Plan(NamedTuple):
    """What to start.

    Attributes:
        commands: One for each worker, to which "--workers 1", "--front" and "--address" are added.
        front: "host:port" that all workers share; port 0 takes a free one. The endpoint of the
            first worker is on the port after it, and so on; with port 0 they take free ones, too.
        grace_seconds: For running calls, at the end.
    """

    commands: Sequence[Sequence[str]]
    front: str
    grace_seconds: float


async def supervise(plan: Plan) -> int:
    """Runs workers until SIGTERM or SIGINT, or until one cannot be started at all.

    Returns:
        The exit code: 0 where every worker came to its end in order.

    Raises:
        CannotReserve: One of the addresses is in use, or not one of this machine.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with contextlib.ExitStack() as held:
        front, *endpoints = [held.enter_context(port) for port in _reserve(plan)]
        shared = ["--workers", "1", "--front", front.address, "--address"]
        workers = [
            Worker([*command, *shared, endpoint.address], plan.grace_seconds)
            for command, endpoint in zip(plan.commands, endpoints, strict=True)
        ]
        running = [asyncio.create_task(worker.run(stop)) for worker in workers]
        await _ready(workers, running, stop)
        if not stop.is_set():
            print(f"railgym serves on {front.address} with {len(workers)} workers", flush=True)
        codes = await asyncio.gather(*running)
    return next((KILLED if code < 0 else code for code in codes if code), 0)


async def _ready(
    workers: Sequence[Worker], running: Sequence[asyncio.Task[int]], stop: asyncio.Event
) -> None:
    """Waits until all workers serve; where one ends before, the others are told to."""
    serving = asyncio.create_task(_all_serve(workers))
    await asyncio.wait([serving, *running], return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        serving.cancel()
        stop.set()


async def _all_serve(workers: Sequence[Worker]) -> None:
    for worker in workers:
        await worker.serves.wait()


class Worker:
    """One place among the workers: a process, and the next one where that dies.

    Attributes:
        serves: Set once it has served for the first time.
    """

    def __init__(self, command: Sequence[str], grace_seconds: float) -> None:
        """Starts nothing yet."""
        self.serves = asyncio.Event()
        self._command = command
        self._grace_seconds = grace_seconds

    async def run(self, stop: asyncio.Event) -> int:
        """Keeps a process running until it is to stop, or does not come to serve at all.

        Returns:
            The exit code of the last process, or less than 0 where a signal ended it.
        """
        pause = LEAST_PAUSE
        while True:
            begun = time.monotonic()
            code = await self._run_once(stop)
            if stop.is_set() or not self.serves.is_set():
                return code
            log.warning("worker_died", endpoint=self._command[-1], code=code)
            pause = LEAST_PAUSE if time.monotonic() - begun > SETTLED_SECONDS else 2 * pause
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(pause, MOST_PAUSE))
                return 0

    async def _run_once(self, stop: asyncio.Event) -> int:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                fd = theirs.fileno()
                process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=fd, stdout=fd, start_new_session=True
                )
            beside = [
                asyncio.create_task(self._hear(ours)),
                asyncio.create_task(self._end_when(stop, process)),
            ]
            code = await process.wait()
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
        told_before_it_began = stop.is_set() and code == -signal.SIGTERM
        return 0 if told_before_it_began else code

    async def _hear(self, worker: socket.socket) -> None:
        """Waits for the line by which a process says that it serves."""
        worker.setblocking(False)
        if await asyncio.get_running_loop().sock_recv(worker, 1):
            self.serves.set()

    async def _end_when(self, stop: asyncio.Event, process: Process) -> None:
        await stop.wait()
        process.terminate()
        await asyncio.sleep(self._grace_seconds + KILL_SECONDS)
        log.error("worker_killed", endpoint=self._command[-1])
        process.kill()


class Reserved:
    """A port that is held, and can be shared with workers."""

    def __init__(self, host: str, port: int) -> None:
        """Takes it.

        Args:
            host: A name or an address, as in "host:port".
            port: 0 takes a free one.

        Raises:
            CannotReserve: It is in use, or no address of this machine.
        """
        name = host.strip("[]")
        try:
            family, *_, place = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)  # without sharing, so that any other listener is in the way
                place = probe.getsockname()
            self._socket = socket.socket(family)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind(place)
        except OSError as e:
            raise CannotReserve(f"cannot listen on {host}:{port}: {e.strerror}") from None
        self.address = f"{host}:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Reserved:
        """Gives the port."""
        return self

    def __exit__(self, *_: object) -> None:
        """Lets go of it."""
        self._socket.close()


def _reserve(plan: Plan) -> Iterator[Reserved]:
    """The front and the endpoint of each worker."""
    host, _, text = plan.front.rpartition(":")
    port = int(text)
    for number in range(len(plan.commands) + 1):
        yield Reserved(host, port + number if port else 0)
