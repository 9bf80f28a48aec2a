"""Who takes part in the contest: what is served, and how it is driven."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from processes import HERE, PEERS_PYTHON, railgym_command

UNARY_ECHO = "bare unary echo"
STREAM_ECHO = "bare stream echo"
UNARY = "Railgym Step"
ROLLOUT = "Railgym Rollout, 1 row"
BATCH = "Railgym Rollout, 64 rows"
OWN_CLIENT = "Railgym, its own client"
IN_PROCESS = "Railgym in process"
OPENENV = "OpenEnv, async step"
OPENENV_OWN = "OpenEnv, its own client"
OPENENV_SYNC = "OpenEnv, sync step"
DM_ENV_RPC = "dm_env_rpc"
DM_ENV_RPC_OWN = "dm_env_rpc, its own client"
FASTAPI = "FastAPI"


class Contestant(NamedTuple):
    """A server and its driver.

    Attributes:
        name: As it stands in the table.
        what: For a reader who does not know it.
        serve: Command of the server, from how many sessions there will be and a folder of its own;
            None: the driver is all there is.
        drive: Command of the driver, without address and sessions.
        how: Its last arguments.
        least: Fewest sessions with which it takes part.
        most: Most sessions with which it takes part.
    """

    name: str
    what: str
    serve: Callable[[int, Path], list[str | Path]] | None
    drive: list[str | Path]
    how: tuple[str, ...] = ()
    least: int = 1
    most: int = 1_000_000


def _ours(name: str) -> list[str | Path]:
    return [sys.executable, HERE / name]


def _peer(name: str) -> list[str | Path]:
    return [PEERS_PYTHON, HERE / name]


def _echo(sessions: int, folder: Path) -> list[str | Path]:
    return _ours("serve_echo.py")


def _railgym(sessions: int, folder: Path) -> list[str | Path]:
    return railgym_command(folder)


CONTESTANTS = [
    Contestant(
        STREAM_ECHO,
        "grpc.aio, a stream a session, bytes returned as they came",
        _echo,
        _ours("drive_echo.py"),
        ("stream",),
    ),
    Contestant(
        ROLLOUT,
        "a stream a session, a row a message; validated, hashed, logged",
        _railgym,
        _ours("drive_railgym.py"),
        ("stream",),
    ),
    Contestant(
        OPENENV,
        "a WebSocket a session; steps in the event loop, its best case",
        lambda sessions, folder: [*_peer("serve_openenv.py"), "async"],
        _peer("drive_openenv.py"),
        ("lean",),
    ),
    Contestant(
        OPENENV_OWN,
        "the same server, as its users reach it: GenericEnvClient",
        lambda sessions, folder: [*_peer("serve_openenv.py"), "async"],
        _peer("drive_openenv.py"),
        ("own",),
    ),
    Contestant(
        DM_ENV_RPC,
        "its synchronous servicer, a stream and a thread a session",
        lambda sessions, folder: [*_peer("serve_dm_env_rpc.py"), str(sessions + 8)],
        _peer("drive_dm_env_rpc.py"),
        ("lean",),
    ),
    Contestant(
        DM_ENV_RPC_OWN,
        "the same server, as its users reach it: AsyncConnection and tensors",
        lambda sessions, folder: [*_peer("serve_dm_env_rpc.py"), str(sessions + 8)],
        _peer("drive_dm_env_rpc.py"),
        ("own",),
    ),
    Contestant(
        UNARY_ECHO,
        "grpc.aio, a call a step, bytes returned as they came",
        _echo,
        _ours("drive_echo.py"),
        ("unary",),
    ),
    Contestant(
        UNARY,
        "a call a step; validated, hashed, logged",
        _railgym,
        _ours("drive_railgym.py"),
        ("unary",),
    ),
    Contestant(
        BATCH,
        "64 sessions a stream, a row of each in a message",
        _railgym,
        _ours("drive_railgym.py"),
        ("batch",),
        least=64,
    ),
    Contestant(
        OPENENV_SYNC,
        "the same; steps on a thread a session, what a plain environment gets",
        lambda sessions, folder: [*_peer("serve_openenv.py"), "sync"],
        _peer("drive_openenv.py"),
        ("lean",),
    ),
    Contestant(
        FASTAPI,
        "JSON, a POST a step over a kept connection a session",
        lambda sessions, folder: _peer("serve_fastapi.py"),
        _peer("drive_fastapi.py"),
    ),
    Contestant(
        OWN_CLIENT,
        "Step as its users reach it: Session.call, which blocks",
        _railgym,
        _ours("drive_railgym.py"),
        ("own",),
        most=1,
    ),
    Contestant(
        IN_PROCESS,
        "Episode.step without a server, a record or a wire",
        None,
        _ours("drive_in_process.py"),
    ),
]
