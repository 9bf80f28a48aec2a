"""A network that falls silent, and a server that stops: a client notices both, and goes on."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import proxy as proxies
import pytest

import railgym
from railgym.connection import OPTIONS
from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceServicer, add_EnvServiceServicer_to_server


@pytest.fixture
def network(server):
    """A proxy before the server, and the loop that it runs in."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = proxies.Proxy(random.Random(1))
    port = int(server.address.rpartition(":")[2])
    asyncio.run_coroutine_threadsafe(proxy.start("127.0.0.1", [port]), loop).result(10)
    yield proxy, loop, f"{proxies.HOST}:{port}"
    asyncio.run_coroutine_threadsafe(proxy.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_a_connection_that_falls_silent_is_given_up(network):
    proxy, loop, address = network
    soon = [("grpc.http2.ping_timeout_ms", 1_000), ("grpc.keepalive_timeout_ms", 1_000)]
    with railgym.connect(address, timeout_seconds=90, options=soon) as client:
        session = client.session("railgym/Typewriter-v1")
        session.reset(options={"target": "xyz"})
        loop.call_soon_threadsafe(proxy.silence)
        begun = time.monotonic()
        for number in range(1, 4):
            assert session.call("type_letter", letter="xyz"[number - 1]).observation
        assert time.monotonic() - begun < 50  # else it would be more than a minute
        assert proxy.counts["fell silent"] == 1


def test_lost_pings_are_noticed_as_soon_as_lost_keepalive():
    options = dict(OPTIONS)
    assert options["grpc.http2.ping_timeout_ms"] == options["grpc.keepalive_timeout_ms"]


def test_options_win_over_those_of_the_client(server):
    options = [("grpc.max_receive_message_length", 100)]
    with (
        railgym.connect(server.address, options=options) as client,
        pytest.raises(railgym.RailgymError, match="larger than max"),
    ):
        client.envs()


class Stopping(EnvServiceServicer):
    """Cancels the first calls, as a server does with those that come while it stops."""

    def __init__(self):
        self.calls = 0

    def ListEnvs(self, request, context):
        self.calls += 1
        if self.calls < 3:
            context.abort(grpc.StatusCode.CANCELLED, "")
        return pb.ListEnvsResponse()


def test_a_call_that_a_stopping_server_cancels_is_made_again():
    server, stopping = grpc.server(ThreadPoolExecutor(1)), Stopping()
    add_EnvServiceServicer_to_server(stopping, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with railgym.connect(f"127.0.0.1:{port}") as client:
        assert client.envs() == []
        assert stopping.calls == 3
    server.stop(0).wait(10)
