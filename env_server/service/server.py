"""The server's life: bind, serve, reap, drain.

It binds before it opens the log, and says NOT_SERVING before it stops. Calls run in one event
loop, and so do the bundled environments.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import structlog
from grpc_channelz.v1 import channelz, channelz_pb2
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health_aio
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from env_server.errors import LogUnwritable
from env_server.registry import Registry
from env_server.service.access import Gate
from env_server.service.env_service import EnvService
from env_server.service.episode_service import EpisodeService
from env_server.service.garbage import collecting_rarely
from env_server.service.identity import NO_TOKENS, AgentTokens, OperatorTokens, server_key
from env_server.service.limits import Limits
from env_server.service.metrics import Metrics, shown
from env_server.service.owner import follow_owner
from env_server.service.sessions import DEFAULT_CAPACITY, DEFAULT_LEASE_SECONDS, Sessions
from env_server.service.tls import TlsFiles, server_credentials
from railgym.v1 import env_service_pb2, episode_service_pb2
from railgym.v1.env_service_pb2_grpc import add_EnvServiceServicer_to_server
from railgym.v1.episode_service_pb2_grpc import add_EpisodeServiceServicer_to_server

DEFAULT_ADDRESS = "127.0.0.1:50051"
SYNC_SECONDS = 0.05
REAP_SECONDS = 1.0

ENV_SERVICE = env_service_pb2.DESCRIPTOR.services_by_name["EnvService"].full_name
CHANNELZ_SERVICE = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name
EPISODE_SERVICE = episode_service_pb2.DESCRIPTOR.services_by_name["EpisodeService"].full_name

KEEPALIVE = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # a minute by default, whatever the line above says
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
        limits: What clients and environments are held to.
        advertise: Host by which clients reach this server's own address; empty: the host of
            that address.
        front: "host:port" where it also listens, shared with the other workers; empty: it is
            no worker.
        tokens: Of operators; none: everyone who reaches the server is one.
        tls: The files of the certificate; None: in clear.
        metrics_address: "host:port" of the page for Prometheus; empty: none.
        tracing: Whether calls become OpenTelemetry spans, sent as the OTEL_* variables say.
        channelz: Whether gRPC's own channelz service tells of connections and calls.
        owned: Whether it stops when standard input ends, whose other end its owner holds.
    """

    log_dir: Path
    address: str = DEFAULT_ADDRESS
    capacity: int = DEFAULT_CAPACITY
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    grace_seconds: float = 10.0
    limits: Limits = Limits()
    advertise: str = ""
    front: str = ""
    tokens: OperatorTokens = NO_TOKENS
    tls: TlsFiles | None = None
    metrics_address: str = ""
    tracing: bool = False
    channelz: bool = False
    owned: bool = False


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
    with _seen_from_outside(registry, settings) as (metrics, interceptors):
        async with _serving(registry, settings, metrics, interceptors) as running:
            yield running


@contextlib.contextmanager
def _seen_from_outside(
    registry: Registry, settings: Settings
) -> Iterator[tuple[Metrics, list[grpc.aio.ServerInterceptor]]]:
    """Counts, and shows what was counted; gives what looks at calls."""
    metrics = Metrics(registry.envs)
    interceptors: list[grpc.aio.ServerInterceptor] = []
    with contextlib.ExitStack() as around:
        if settings.metrics_address:
            try:
                address = around.enter_context(shown(metrics, settings.metrics_address))
            except OSError as e:
                raise CannotBind(f"cannot listen on {settings.metrics_address}: {e}") from None
            log.info("metrics", url=f"http://{address}/metrics")
        if settings.tracing:
            from env_server.service.traces import Tracing, exporting  # an extra of its own

            interceptors.append(Tracing(around.enter_context(exporting())))
        yield metrics, interceptors


@contextlib.asynccontextmanager
async def _serving(
    registry: Registry,
    settings: Settings,
    metrics: Metrics,
    interceptors: list[grpc.aio.ServerInterceptor],
) -> AsyncIterator[Running]:
    options = [
        *KEEPALIVE,
        *settings.limits.options(),
        ("grpc.so_reuseport", int(bool(settings.front))),  # else a port in use is an error
        ("grpc.enable_channelz", int(settings.channelz)),
    ]
    agents = AgentTokens(server_key(settings.log_dir))
    gate = Gate(settings.tokens, agents, metrics)
    server = grpc.aio.server(
        interceptors=[*interceptors, gate],
        options=options,
        maximum_concurrent_rpcs=settings.limits.calls or None,
    )
    address = _bind(server, settings.address, settings.tls)
    if settings.front:
        _bind(server, settings.front, settings.tls)
    sessions = Sessions(
        registry,
        settings.log_dir,
        metrics=metrics,
        capacity=settings.capacity,
        lease_seconds=settings.lease_seconds,
        limits=settings.limits,
        quotas=settings.tokens.quotas,
        endpoint=_endpoint(settings, address),
    )
    envs, health = EnvService(sessions, agents), health_aio.HealthServicer()
    await _tell(health, HealthCheckResponse.NOT_SERVING)
    _add_services(server, envs, EpisodeService(sessions), health, settings)
    await server.start()
    stopped = asyncio.Event()
    housekeeping = asyncio.create_task(_keep_house(sessions, health, stopped))
    try:
        await envs.prepare()
        await _tell(health, HealthCheckResponse.SERVING)
        log.info(
            "serving", address=address, envs=len(registry.envs), log_dir=str(sessions.directory)
        )
        yield Running(address, sessions)
    finally:
        sessions.drain()
        await health.enter_graceful_shutdown()
        await server.stop(settings.grace_seconds)
        stopped.set()
        await housekeeping
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
    if settings.front or settings.owned:
        follow_owner(stop)
    async with serving(registry, settings) as running, collecting_rarely():
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
    settings: Settings,
) -> None:
    add_EnvServiceServicer_to_server(envs, server)
    add_EpisodeServiceServicer_to_server(episodes, server)
    add_HealthServicer_to_server(health, server)
    names = [ENV_SERVICE, EPISODE_SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME]
    if settings.channelz:
        channelz.add_channelz_servicer(server)
        names.append(CHANNELZ_SERVICE)
    reflection.enable_server_reflection(names, server)


def _shut(sessions: Sessions) -> None:
    try:
        sessions.shut()
    except (OSError, LogUnwritable) as e:
        log.error("log_not_closed", error=str(e))
    log.info("stopped", sessions=len(sessions))


def _bind(server: grpc.aio.Server, address: str, tls: TlsFiles | None) -> str:
    host = address.rpartition(":")[0]
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, server_credentials(tls))
    except RuntimeError:
        raise CannotBind(f"cannot listen on {address}: in use, or not an address here") from None
    return f"{host}:{port}"


def _endpoint(settings: Settings, address: str) -> str:
    """Where clients find the sessions of this server; empty: where they created them."""
    host, _, port = address.rpartition(":")
    if not (settings.advertise or settings.front):
        return ""
    return f"{settings.advertise or host}:{port}"


async def _keep_house(
    sessions: Sessions, health: health_aio.HealthServicer, stopped: asyncio.Event
) -> None:
    """Ends expired sessions, and brings the log to the disk in groups.

    Where the log has given up, the server says that it does not serve, and keeps refusing steps.
    It is told to stop and not cancelled: a thread that is left behind would keep the log locked.
    """
    rounds = int(REAP_SECONDS / SYNC_SECONDS)
    while not stopped.is_set():
        try:
            for _ in range(rounds):
                await asyncio.sleep(SYNC_SECONDS)
                await asyncio.to_thread(sessions.journal.sync)
                if stopped.is_set():
                    return
            await sessions.reap()
        except (OSError, LogUnwritable) as e:
            log.error("housekeeping_failed", error=str(e))
        if sessions.journal.is_lost:
            await _tell(health, HealthCheckResponse.NOT_SERVING)
            return
