"""Foreign environments in processes of their own: what hangs, crashes or swells hurts nobody.

Here is the server's side, over `env_connection`; `env_child` is the other. A process that does not
answer in time is killed, and with it all that it has started. None outlives the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from typing import TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from env_server import codec, errors
from env_server.episode import EpisodeSpec
from env_server.registry import EnvEntry
from env_server.service import env_child
from env_server.service.env_child import Opening
from env_server.service.env_connection import EnvProcess
from env_server.service.hosting import EnvFailed, EnvStopped, EnvTimedOut, Host, LoopHost, Progress
from env_server.service.limits import Limits
from env_server.tasks import Task
from railgym.codec import end_reason_from_proto
from railgym.v1 import env_service_pb2, episode_pb2, space_pb2

START_SECONDS = 60.0
"""For a process to be there, which for the first one means to import what environments need."""

REFUSALS = {cls.__name__: cls for cls in errors.RailgymError.__subclasses__()}

Answer = TypeVar("Answer", bound=Message)

log = structlog.get_logger()


class Hosts:
    """Makes the hosts of one server's environments.

    Attributes:
        limits: Of a foreign environment.
    """

    def __init__(self, limits: Limits, entries: Iterable[EnvEntry] = ()) -> None:
        """Starts nothing yet.

        Args:
            limits: Of a foreign environment.
            entries: Environments whose modules are imported before the first process is needed.
        """
        self.limits = limits
        self._modules = sorted({e.env_class.__module__ for e in entries if e.is_foreign})
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._processes: set[EnvProcess] = set()

    def host(self, entry: EnvEntry, task: Task | None, labels: dict[str, str]) -> Host:
        """A host that awaits its first episode; see `Stage` for the arguments."""
        if not entry.is_foreign:
            return LoopHost(entry, task, labels)
        row = None if task is None else task.row()
        opening = Opening(entry.env_id, row, labels, self.limits.env_bytes)
        return _ProcessHost(self, opening, task)

    async def start_process(self, opening: Opening) -> EnvProcess:
        """Starts the process of an environment.

        Raises:
            OSError: It does not start.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._send(theirs)
            except OSError:
                ours.close()
                raise
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        process = EnvProcess(reader, writer, self._processes.discard)
        self._processes.add(process)
        try:
            await process.begin(opening)
        except BaseException:  # a cancellation too: nobody else knows of it yet
            process.kill()
            raise
        return process

    def stop(self) -> None:
        """Ends every process, at once."""
        for process in list(self._processes):
            process.kill()
        if self._zygote is not None and self._control is not None:
            self._control.close()
            self._zygote.kill()
            self._zygote.wait()
            self._zygote = self._control = None

    def _send(self, connection: socket.socket) -> None:
        """Has a process forked that serves this connection; a zygote that died is replaced."""
        if self._control is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._control, [b"f"], [connection.fileno()])
                return
            self.stop()
        control = self._control = self._start_zygote()
        socket.send_fds(control, [b"f"], [connection.fileno()])

    def _start_zygote(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", env_child.__name__],
                stdin=theirs.fileno(),
                # numpy must start no threads, for only the one that forks goes on in a fork.
                env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
            )
        asked = {"path": sys.path, "modules": self._modules}
        ours.sendall(json.dumps(asked).encode() + b"\n")
        return ours


class _Remote:
    """An episode that is played in another process, as far as the server knows of it."""

    def __init__(self, spec: EpisodeSpec, state_hash: bytes) -> None:
        self.spec = spec
        self.latest = 0
        self.end: str | None = None
        self.truncated = False
        self.state_hash = state_hash
        self.actions: list[episode_pb2.Action] = []

    def note(self, taken: episode_pb2.StepTaken) -> None:
        """Notes a step, unless it repeats the latest one."""
        if taken.step != self.latest + 1:
            return
        transition = taken.transition
        self.latest = taken.step
        self.truncated = transition.truncated
        self.state_hash = transition.state_hash
        self.end = end_reason_from_proto(transition.end_reason) if transition.end_reason else None
        self.actions.append(taken.action)


class _ProcessHost:
    """Runs the code of a foreign environment in a process of its own."""

    def __init__(self, hosts: Hosts, opening: Opening, task: Task | None) -> None:
        self._hosts = hosts
        self._opening = opening
        self._task = task
        self._process: EnvProcess | None = None
        self._episode: _Remote | None = None

    @property
    def episode(self) -> Progress | None:
        """The latest episode; None before the first."""
        return self._episode

    async def info(self, task_count: int) -> env_service_pb2.EnvInfo:
        """What a client may know of the environment."""
        asked = json.dumps(task_count).encode()
        return await self._ask(env_child.INFO, asked, env_service_pb2.EnvInfo)

    async def begin(self, spec: EpisodeSpec) -> episode_pb2.EpisodeStarted:
        """Begins the next episode."""
        asked = codec.spec_to_started(spec).SerializeToString()
        started = await self._ask(env_child.BEGIN, asked, episode_pb2.EpisodeStarted)
        spec = codec.spec_from_started(started, self._task)
        self._episode = _Remote(spec, started.state_hash)
        return started

    async def take(
        self, number: int, received: episode_pb2.Action, turn: int = 0
    ) -> episode_pb2.StepTaken:
        """Takes a step, or repeats the reply to the latest one."""
        asked = episode_pb2.StepTaken(step=number, turn=turn, action=received).SerializeToString()
        taken = await self._ask(env_child.TAKE, asked, episode_pb2.StepTaken)
        assert self._episode is not None
        self._episode.note(taken)
        return taken

    async def render(self) -> space_pb2.Value:
        """What the environment shows."""
        return await self._ask(env_child.RENDER, b"", space_pb2.Value)

    def received(self, steps: int) -> list[episode_pb2.Action]:
        """The first actions of the latest episode."""
        assert self._episode is not None
        return self._episode.actions[:steps]

    def end(self) -> None:
        """Closes the environment once it is done with what it is at. Nobody waits for it."""
        if self._process is not None:
            self._process.close()

    async def _ask(self, kind: bytes, payload: bytes, answer: type[Answer]) -> Answer:
        limit = self._hosts.limits.step_seconds
        try:
            process = self._process = self._process or await self._start()
            async with asyncio.timeout(limit or None):
                return self._understood(*await process.ask(kind, payload), answer)
        except TimeoutError:
            self._kill("env_timed_out", limit_seconds=limit)
            raise EnvTimedOut(limit) from None
        except (OSError, EOFError) as e:
            self._kill("env_process_died", error=str(e))
            raise EnvStopped("ProcessDied") from None
        except (ValueError, KeyError, TypeError, DecodeError) as e:  # foreign code may write there
            self._kill("env_process_talks_nonsense", error=str(e))
            raise EnvStopped("ProcessBroken") from None

    async def _start(self) -> EnvProcess:
        try:
            async with asyncio.timeout(START_SECONDS):
                return await self._hosts.start_process(self._opening)
        except TimeoutError:
            raise OSError(f"no process within {START_SECONDS:g} s") from None

    def _understood(self, kind: bytes, payload: bytes, answer: type[Answer]) -> Answer:
        if kind == env_child.DONE:
            return answer.FromString(payload)
        told = json.loads(payload)
        if kind == env_child.REFUSED:
            name, message, metadata = told
            raise REFUSALS[name](message, **metadata)
        name, trace = told
        log.error("env_failed", env_id=self._opening.env_id, exception=trace)
        raise EnvFailed(name)

    def _kill(self, event: str, **values: object) -> None:
        log.error(event, env_id=self._opening.env_id, **values)
        if self._process is not None:
            self._process.kill()
