"""A real server on a free loopback port, in a thread of its own event loop."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import structlog

from env_server.registry import Registry
from env_server.service.server import Settings, serving
from railgym.v1.env_service_pb2_grpc import EnvServiceStub
from railgym.v1.episode_service_pb2_grpc import EpisodeServiceStub

# A server within the tests' own process must not write into what a command prints.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

OWN = ("Count", "Ends", "Broken", "Slow", "Chance", "OneThread", "Stuck", "Reach", "Mixed", "Notes")
OWN += ("Rogue", "Pid", "Begets")
ADDED = ["CartPole-v1", *(f"envs_for_tests:{name}" for name in OWN)]
"""What the servers of the tests host besides the bundled environments."""


class Served(NamedTuple):
    address: str
    log_dir: Path
    registry: Registry


class ServerThread:
    """Serves until `stop`; the settings' port should be 0."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self.registry = registry
        self.settings = settings
        self.address = ""
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _main(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as e:
            self._failure = e
            self._ready.set()
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        async with serving(self.registry, self.settings) as running:
            self.address = running.address
            self._ready.set()
            await self._stop.wait()


@pytest.fixture(scope="session")
def registry() -> Registry:
    registry = Registry()
    for name in ADDED:
        registry.add(name)
    return registry


@pytest.fixture(scope="session")
def server(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a process: the bundled environments and those of `ADDED`."""
    log_dir = tmp_path_factory.mktemp("server") / "log"
    thread = ServerThread(registry, Settings(log_dir, "127.0.0.1:0", grace_seconds=1))
    yield Served(thread.address, log_dir, registry)
    thread.stop()


class Servers:
    """Starts servers of a test's own, with settings of its own."""

    def __init__(self, registry: Registry, directory: Path) -> None:
        self._registry = registry
        self._directory = directory
        self._running: dict[str, ServerThread] = {}

    def __call__(self, registry: Registry | None = None, **settings: Any) -> Served:
        registry = registry or self._registry
        log_dir = self._directory / f"log-{len(self._running)}"
        settings = {"log_dir": log_dir, "address": "127.0.0.1:0", "grace_seconds": 0.5, **settings}
        thread = ServerThread(registry, Settings(**settings))
        self._running[thread.address] = thread
        return Served(thread.address, settings["log_dir"], registry)

    def stop(self, server: Served) -> None:
        self._running.pop(server.address).stop()

    def stop_all(self) -> None:
        for thread in self._running.values():
            thread.stop()


@pytest.fixture
def serve(registry: Registry, tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(registry, tmp_path)
    yield servers
    servers.stop_all()


@pytest.fixture(scope="session")
def channel(server: Served) -> Iterator[grpc.Channel]:
    """A plain channel to `server`."""
    with grpc.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture(scope="session")
def envs(channel: grpc.Channel) -> EnvServiceStub:
    """The bare EnvService of `server`, without a client."""
    return EnvServiceStub(channel)


@pytest.fixture(scope="session")
def episodes(channel: grpc.Channel) -> EpisodeServiceStub:
    """The bare EpisodeService of `server`, without a client."""
    return EpisodeServiceStub(channel)
