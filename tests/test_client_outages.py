"""What the client survives, and how it says that it did not."""

import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import railgym
from railgym import connection
from railgym.v1 import env_service_pb2, env_service_pb2_grpc, episode_service_pb2

DOG = "typewriter/reference/dog"


def test_only_repeatable_calls_are_in_the_retry_policy():
    services = {
        descriptor.full_name: {method.name for method in descriptor.methods}
        for module in (env_service_pb2, episode_service_pb2)
        for descriptor in module.DESCRIPTOR.services_by_name.values()
    }
    assert services == {
        "railgym.v1.EnvService": {
            *connection.REPEATABLE["railgym.v1.EnvService"],
            "ForkSession",
            "RecordClaim",
            "Rollout",
        },
        "railgym.v1.EpisodeService": {*connection.REPEATABLE["railgym.v1.EpisodeService"]},
    }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


SERVE = """
import asyncio, sys
from pathlib import Path
from env_server.registry import Registry
from env_server.service.server import Settings, serve

asyncio.run(serve(Registry(), Settings(Path(sys.argv[2]), sys.argv[1])))
"""


@pytest.fixture
def start_server(tmp_path):
    """Starts servers one after another on the same log, in processes of their own."""
    servers = []

    def start(address):
        program = [sys.executable, "-c", SERVE, address, str(tmp_path)]
        servers.append(subprocess.Popen(program, stdout=subprocess.DEVNULL))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
        server.wait()


def test_a_client_carries_on_through_a_crash_of_the_server(start_server):
    address = f"127.0.0.1:{free_port()}"
    server = start_server(address)
    with railgym.connect(address, startup_seconds=30) as client:
        session = client.session(task_id=DOG)
        session.reset()
        session.call("type_letter", letter="d")
        server.kill()
        server.wait()
        with ThreadPoolExecutor() as pool:
            step = pool.submit(session.call, "type_letter", letter="o")
            time.sleep(2)  # more than gRPC's own retries last
            start_server(address)
            assert step.result(60).observation == '{"result":"do"}'
        session.call("type_letter", letter="g")
        assert session.final("dog").reward == 1.0
        session.close()


def test_a_server_that_is_not_there_is_unavailable_soon():
    start = time.monotonic()
    with (
        railgym.connect(f"127.0.0.1:{free_port()}") as client,
        pytest.raises(railgym.Unavailable) as caught,
    ):
        client.envs()
    assert caught.value.code == "UNAVAILABLE"
    assert time.monotonic() - start < 5


def test_a_server_that_does_not_come_back_is_unavailable_when_patience_ends(start_server):
    address = f"127.0.0.1:{free_port()}"
    server = start_server(address)
    with railgym.connect(address, startup_seconds=30, patience_seconds=2) as client:
        session = client.session(task_id=DOG)
        session.reset()
        server.kill()
        server.wait()
        start = time.monotonic()
        with pytest.raises(railgym.Unavailable), session:
            session.call("type_letter", letter="d")
    assert 2 < time.monotonic() - start < 10


def test_a_server_that_never_answers_runs_into_the_deadline():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        start = time.monotonic()
        with (
            railgym.connect(address, timeout_seconds=0.5) as client,
            pytest.raises(railgym.DeadlineExceeded),
        ):
            client.envs()
        with pytest.raises(railgym.DeadlineExceeded, match=r"no reply to 2 rows within 0.5 s"):
            railgym.make_vec("CartPole-v1", 2, address, timeout_seconds=0.5)
        with pytest.raises(railgym.Unavailable, match=r"no server at .* within 0.5 s"):
            railgym.make_vec("CartPole-v1", 2, address, startup_seconds=0.5)
        assert time.monotonic() - start < 5


def test_a_stream_ends_with_its_server(start_server):
    address = f"127.0.0.1:{free_port()}"
    server = start_server(address)
    envs = railgym.make_vec("railgym/TypewriterPolicy-v1", 2, address, startup_seconds=30)
    envs.reset(seed=1)
    server.kill()
    server.wait()
    for _ in range(2):
        with pytest.raises(railgym.Unavailable):
            envs.step(envs.action_space.sample())
    envs.close()


class Refusing(env_service_pb2_grpc.EnvServiceServicer):
    """Is unavailable to every call, and keeps count."""

    def __init__(self):
        self.calls = []

    def _refuse(self, request, context):
        self.calls.append((type(request).__name__, dict(context.invocation_metadata())))
        context.abort(grpc.StatusCode.UNAVAILABLE, "not now")

    GetSession = ForkSession = RecordClaim = Render = _refuse


def test_only_repeatable_calls_are_repeated_and_each_carries_the_token():
    refusing = Refusing()
    server = grpc.server(ThreadPoolExecutor(2))
    env_service_pb2_grpc.add_EnvServiceServicer_to_server(refusing, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    link = connection.Connection(f"127.0.0.1:{port}", token="secret")
    for call, rpc, request in [
        (link.ask_once, link.envs.ForkSession, env_service_pb2.ForkSessionRequest()),
        (link.ask_once, link.envs.RecordClaim, env_service_pb2.RecordClaimRequest()),
        (link.ask, link.envs.GetSession, env_service_pb2.GetSessionRequest()),
    ]:
        with pytest.raises(railgym.Unavailable, match="not now"):
            call(rpc, request)
    link.close()
    server.stop(None).wait()
    names = [name for name, _ in refusing.calls]
    assert names.count("ForkSessionRequest") == 1
    assert names.count("RecordClaimRequest") == 1
    assert names.count("GetSessionRequest") == 5
    assert {metadata["authorization"] for _, metadata in refusing.calls} == {"Bearer secret"}
