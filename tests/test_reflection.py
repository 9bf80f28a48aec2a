"""Anyone with a gRPC tool can play: the server says what it is by reflection."""

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from env_server.gold import play_gold
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_service_pb2 as episode_service

README = Path(__file__).parent.parent / "README.md"
BY_HAND = re.compile(r"<!-- test: by-hand -->\n```sh\n(.*?)```", re.DOTALL)

SERVICES = {"railgym.v1.EnvService", "railgym.v1.EpisodeService", "grpc.health.v1.Health"}
METHODS = {
    f"{service.full_name}/{method.name}"
    for module in (pb, episode_service)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def run(*words, **options):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        words,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def buf(address, method, request):
    """Calls a method with `buf curl`, a client that shares nothing with ours."""
    options = ["--protocol", "grpc", "--http2-prior-knowledge", "-d", json.dumps(request)]
    return json.loads(run("buf", "curl", *options, f"http://{address}/{method}"))


def test_tools_find_the_services_and_their_methods(server):
    listed = run("grpcurl", "-plaintext", server.address, "list").split()
    assert set(listed) >= SERVICES
    options = ["--protocol", "grpc", "--http2-prior-knowledge", "--list-methods"]
    found = run("buf", "curl", *options, f"http://{server.address}").split()
    assert set(found) >= METHODS


def test_an_episode_is_played_with_buf_curl_as_in_process(server, registry):
    """A client in Go, without a line of ours, sees the states that `Episode` goes through (S24)."""
    task = registry.task("typewriter/reference/aa")
    played, replies = play_gold(task, registry)
    states = [base64.b64encode(reply.state_hash).decode() for reply in replies]
    service = "railgym.v1.EnvService"
    created = buf(server.address, f"{service}/CreateSession", {"taskId": "typewriter/reference/aa"})
    session = {"sessionId": created["sessionId"]}
    assert created["task"]["maxSteps"] > 2
    first = buf(server.address, f"{service}/Reset", session)
    assert first["observation"] == {"json": '{"result":""}'}
    assert first["stateHash"] == base64.b64encode(played.start.state_hash).decode()
    call = {"toolCall": {"name": "type_letter", "argumentsJson": '{"letter":"a"}'}}
    for number, paper in [(1, "a"), (2, "aa")]:
        request = {**session, "step": number, "action": call}
        reply = buf(server.address, f"{service}/Step", request)["transition"]
        assert reply["observation"] == {"json": f'{{"result":"{paper}"}}'}
        assert reply["stateHash"] == states[number - 1]
    request = {**session, "step": 3, "action": {"final": {}}}
    last = buf(server.address, f"{service}/Step", request)["transition"]
    assert (last["reward"], last["terminated"]) == (1, True)
    assert (last["endReason"], last["stateHash"]) == ("END_REASON_FINAL", states[-1])
    assert buf(server.address, f"{service}/CloseSession", session) == {}


@pytest.mark.parametrize("service", ["", "railgym.v1.EnvService", "railgym.v1.EpisodeService"])
def test_the_health_of_each_service_is_known(server, service):
    with grpc.insecure_channel(server.address) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=service)
        )
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_the_readme_plays_an_episode_by_hand(server):
    (lines,) = BY_HAND.findall(README.read_text())
    assert "localhost:50051" in lines
    program = lines.replace("localhost:50051", server.address)
    printed = run("bash", "-euo", "pipefail", "-c", program)
    assert set(printed.split()) >= SERVICES
    assert re.search(r'"reward": 1\b', printed), printed
    assert '"END_REASON_FINAL"' in printed
