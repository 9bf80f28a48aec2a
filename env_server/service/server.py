"""The server's life: bind, serve, reap, drain.

It binds before it opens the log, and says NOT_SERVING before it stops. Calls run in one event
loop, and so do the bundled environments.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import grpc
import structlog
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health_aio
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from env_server.errors import LogUnwritable
from env_server.registry import Registry
from env_server.service.env_service import EnvService
from env_server.service.episode_service import EpisodeService
from env_server.service.sessions import DEFAULT_CAPACITY, DEFAULT_LEASE_SECONDS, Sessions
from railgym.v1 import env_service_pb2, episode_service_pb2
from railgym.v1.env_service_pb2_grpc import add_EnvServiceServicer_to_server
from railgym.v1.episode_service_pb2_grpc import add_EpisodeServiceServicer_to_server

DEFAULT_ADDRESS = "127.0.0.1:50051"
SYNC_SECONDS = 0.05
REAP_SECONDS = 1.0

ENV_SERVICE = env_service_pb2.DESCRIPTOR.services_by_name["EnvService"].full_name
EPISODE_SERVICE = episode_service_pb2.DESCRIPTOR.services_by_name["EpisodeService"].full_name

OPTIONS = [
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a silent share
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
]

log = structlog.get_logger()


class CannotBind(OSError):
    """The address is in use, or not one of this machine."""


class Settings(NamedTuple):
    """How to serve.

    Attributes:
        log_dir: Where the log is; made where it is missing.
        address: "host:port"; port 0 takes a free one.
        capacity: Most sessions at once.
        lease_seconds: Of idleness, until a session expires.
        grace_seconds: For running calls, at the end.
    """

    log_dir: Path
    address: str = DEFAULT_ADDRESS
    capacity: int = DEFAULT_CAPACITY
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    grace_seconds: float = 10.0


class Running(NamedTuple):
    """A server that serves."""

    address: str
    sessions: Sessions


@contextlib.asynccontextmanager
async def serving(registry: Registry, settings: Settings) -> AsyncIterator[Running]:
    """Serves while the block runs, then drains.

    Raises:
        CannotBind: The address is in use, or not one of this machine.
        OSError: The log directory cannot be written.
        EnvError: One of the environments cannot be made.
    """
    server = grpc.aio.server(options=OPTIONS)
    address = _bind(server, settings.address)
    sessions = Sessions(
        registry,
        settings.log_dir,
        capacity=settings.capacity,
        lease_seconds=settings.lease_seconds,
    )
    envs, health = EnvService(sessions), health_aio.HealthServicer()
    await _tell(health, HealthCheckResponse.NOT_SERVING)
    _add_services(server, envs, EpisodeService(sessions), health)
    await server.start()
    housekeeping = asyncio.create_task(_keep_house(sessions))
    try:
        await envs.prepare()
        await _tell(health, HealthCheckResponse.SERVING)
        log.info(
            "serving", address=address, envs=len(registry.envs), log_dir=str(sessions.directory)
        )
        yield Running(address, sessions)
    finally:
        await health.enter_graceful_shutdown()
        await server.stop(settings.grace_seconds)
        housekeeping.cancel()
        await asyncio.wait([housekeeping])
        _shut(sessions)


async def serve(registry: Registry, settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        CannotBind: The address is in use, or not one of this machine.
        OSError: The log directory cannot be written.
        EnvError: One of the environments cannot be made.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serving(registry, settings) as running:
        print(f"railgym serves on {running.address}", flush=True)
        await stop.wait()


async def _tell(health: health_aio.HealthServicer, status: int) -> None:
    for name in ("", ENV_SERVICE, EPISODE_SERVICE):
        await health.set(name, status)


def _add_services(
    server: grpc.aio.Server,
    envs: EnvService,
    episodes: EpisodeService,
    health: health_aio.HealthServicer,
) -> None:
    add_EnvServiceServicer_to_server(envs, server)
    add_EpisodeServiceServicer_to_server(episodes, server)
    add_HealthServicer_to_server(health, server)
    names = (ENV_SERVICE, EPISODE_SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)


def _shut(sessions: Sessions) -> None:
    try:
        sessions.shut()
    except (OSError, LogUnwritable) as e:
        log.error("log_not_closed", error=str(e))
    log.info("stopped", sessions=len(sessions))


def _bind(server: grpc.aio.Server, address: str) -> str:
    host = address.rpartition(":")[0]
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise CannotBind(f"cannot listen on {address}: in use, or not an address here") from None
    return f"{host}:{port}"


async def _keep_house(sessions: Sessions) -> None:
    """Ends expired sessions, and brings the log to the disk in groups."""
    rounds = int(REAP_SECONDS / SYNC_SECONDS)
    while True:
        try:
            for _ in range(rounds):
                await asyncio.sleep(SYNC_SECONDS)
                await asyncio.to_thread(sessions.sync)
            await sessions.reap()
        except (OSError, LogUnwritable) as e:
            log.error("housekeeping_failed", error=str(e))
