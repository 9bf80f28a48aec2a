"""The process of one foreign environment, and the zygote that all of them are forked from.

The zygote imports what environments need and then does nothing but fork, so that a process costs
milliseconds and shares its memory. Each process plays one `Stage` for the server, over a socket.
Nothing is ever unpickled: frames hold JSON and messages of Railgym.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
from importlib import import_module
from traceback import format_exc
from typing import NamedTuple

from env_server import codec
from env_server.errors import RailgymError
from env_server.registry import Registry
from env_server.service.stage import Stage
from env_server.tasks import Task
from railgym.v1 import episode_pb2

HEAD = struct.Struct("!cI")
"""Of a frame: its kind, and how many bytes follow."""

INFO, BEGIN, TAKE, RENDER = b"I", b"B", b"T", b"R"
"""Requests. Before the first one comes an `Opening`, in a frame of the kind OPEN."""

OPEN = b"O"
BORN, DONE, REFUSED, FAILED = b"b", b"d", b"r", b"f"
"""Answers. BORN comes first and holds the process id as JSON."""

_PR_SET_PDEATHSIG = 1


class Opening(NamedTuple):
    """What a process is to play; travels as a JSON array.

    Attributes:
        env_id: The environment.
        task_row: The task, as a line of JSON; None: none.
        labels: For the record of every episode.
        memory_bytes: Most that the process may use; 0: no limit.
    """

    env_id: str
    task_row: str | None
    labels: dict[str, str]
    memory_bytes: int


def main() -> None:
    """Is the zygote: forks a process for each socket that it is sent, until nobody sends more.

    The first line on standard input, which is a socket itself, says as JSON what to import.
    """
    with socket.socket(fileno=0) as control:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the server that ends it
        asked = json.loads(_line(control))
        sys.path[:] = asked["path"]
        for module in asked["modules"]:
            with contextlib.suppress(Exception):  # the process that needs it will say what is wrong
                import_module(module)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to wait for a process
        gc.freeze()
        while True:
            _, connections, _, _ = socket.recv_fds(control, 1, 1)
            if not connections:
                return
            if os.fork() == 0:
                break
            os.close(connections[0])
    with socket.socket(fileno=connections[0]) as connection:
        _be_child(connection)


def _line(control: socket.socket) -> bytes:
    read = bytearray()
    while not read.endswith(b"\n"):
        byte = control.recv(1)  # no more: what follows comes with a socket
        if not byte:
            sys.exit()
        read += byte
    return bytes(read)


def _be_child(connection: socket.socket) -> None:
    """Serves one environment until the server closes the connection."""
    os.setsid()  # so that what it starts itself ends with it
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # and it with the zygote
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    faulthandler.enable()
    os.open(os.devnull, os.O_RDONLY)  # takes 0, which is free: nothing is to be read there
    with connection.makefile("rb") as requests:
        connection.sendall(frame(BORN, json.dumps(os.getpid()).encode()))
        head = requests.read(HEAD.size)
        if not head:
            return
        opening = Opening(*json.loads(requests.read(HEAD.unpack(head)[1])))
        _limit_memory(opening.memory_bytes)
        player = _Player(opening)
        while head := requests.read(HEAD.size):
            kind, size = HEAD.unpack(head)
            connection.sendall(player.answer(kind, requests.read(size)))
        player.close()


def _limit_memory(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if size:
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


class _Player:
    """Answers requests with a stage, which the first of them makes."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._task: Task | None = None
        self._stage: Stage | None = None

    def answer(self, kind: bytes, payload: bytes) -> bytes:
        """Does what a request asks for.

        Returns:
            The frame to be sent.
        """
        try:
            return frame(DONE, self._do(kind, payload))
        except RailgymError as e:
            return frame(REFUSED, json.dumps([type(e).__name__, str(e), e.metadata]).encode())
        except BaseException as e:  # even an exit: it is the server that ends this process
            return frame(FAILED, json.dumps([type(e).__name__, format_exc()]).encode())

    def close(self) -> None:
        """Closes the environment."""
        if self._stage is not None:
            self._stage.close()

    def _do(self, kind: bytes, payload: bytes) -> bytes:
        stage = self._stage = self._stage or self._make_stage()
        if kind == TAKE:
            asked = episode_pb2.StepTaken.FromString(payload)
            return stage.take(asked.step, asked.action, asked.turn).SerializeToString()
        if kind == BEGIN:
            started = episode_pb2.EpisodeStarted.FromString(payload)
            spec = codec.spec_from_started(started, self._task)
            return stage.begin(spec).SerializeToString()
        if kind == RENDER:
            return stage.render().SerializeToString()
        return stage.info(json.loads(payload)).SerializeToString()

    def _make_stage(self) -> Stage:
        env_id, row, labels, _ = self._opening
        self._task = None if row is None else Task.model_validate_json(row)
        return Stage(Registry(tasks={}).add(env_id), self._task, labels)


def frame(kind: bytes, payload: bytes) -> bytes:
    """Writes a frame."""
    return HEAD.pack(kind, len(payload)) + payload


if __name__ == "__main__":
    main()
