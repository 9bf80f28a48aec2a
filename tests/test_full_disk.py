"""A disk that is full, and one that is broken: nothing is lost, and it goes on when it can."""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

import grpc
import pytest
import raw

import railgym
from env_server.log import read
from env_server.scoring.score import score_log
from env_server.service.limits import Limits
from env_server.service.server import SYNC_SECONDS
from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

LONG = {"target": "x" * 1_000}
UNLIMITED = Limits(free_log_bytes=0)


@pytest.fixture
def disk(tmp_path):
    """A disk of 128 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk takes more rights than there are here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def connect():
    with contextlib.ExitStack() as channels:
        yield lambda served: EnvServiceStub(
            channels.enter_context(grpc.insecure_channel(served.address))
        )


def step_until_refused(envs, session_id, taken=0):
    """Types letters until the log takes no more, and gives how many were acknowledged."""
    while True:
        request = raw.step_request(session_id, taken + 1, raw.letter("x"))
        try:
            envs.Step(request, timeout=raw.SECONDS)
        except grpc.RpcError:
            refusal = raw.refusal(envs.Step, request)
            assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "LOG_UNWRITABLE")
            return taken
        taken += 1
        assert taken < 1_000


def test_a_full_disk_refuses_steps_and_goes_on_by_itself(serve, connect, disk, registry):
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(64 * 1024))
    server = serve(log_dir=disk / "log", limits=UNLIMITED)
    envs = connect(server)
    session_id = raw.playing(envs, options=LONG)
    taken = step_until_refused(envs, session_id)
    assert taken > 10
    labels = {f"label {number}": "y" * 250 for number in range(32)}  # more than one block
    creation = pb.CreateSessionRequest(env_id=raw.TYPEWRITER, request_id="key", labels=labels)
    assert raw.refusal(envs.CreateSession, creation).reason == "LOG_UNWRITABLE"
    assert raw.steps_in(server.log_dir) == {(f"{session_id}.1", n + 1): 1 for n in range(taken)}

    ballast.unlink()
    for number in range(taken + 1, taken + 6):
        seen = raw.step(envs, session_id, number, raw.letter("x"))
        assert json.loads(seen.observation.json) == {"result": "x" * number}
    raw.close(envs, session_id)
    raw.close(envs, envs.CreateSession(creation, timeout=raw.SECONDS).session_id)
    (score,) = score_log(server.log_dir, registry)
    assert (score.outcome, score.steps) == ("VERIFIED", taken + 5)


def test_a_broken_disk_is_told_by_the_health_and_another_server_goes_on(
    serve, connect, tmp_path, registry
):
    broken = serve(log_dir=tmp_path / "log", limits=UNLIMITED)
    sound = serve(log_dir=tmp_path / "log", limits=UNLIMITED)
    here, there = connect(broken), connect(sound)
    session_id = raw.playing(here, options=LONG)
    raw.step(here, session_id, 1, raw.letter("x"))
    (segment,) = {record.path for record in read(tmp_path / "log")}
    time.sleep(10 * SYNC_SECONDS)  # while it is flushed, another file of it is open
    wait_until(lambda: len(files_of(segment)) == 1)
    full = os.open("/dev/full", os.O_RDWR)  # takes nothing, and cannot be cut either
    os.dup2(full, *files_of(segment))
    os.close(full)

    assert step_until_refused(here, session_id, taken=1) == 1
    wait_until(lambda: health(broken) == "NOT_SERVING")
    assert step_until_refused(here, session_id, taken=1) == 1
    assert health(sound) == "SERVING"
    seen = raw.step(there, session_id, 2, raw.letter("x"))
    assert json.loads(seen.observation.json) == {"result": "xx"}
    raw.close(there, session_id)
    (score,) = score_log(sound.log_dir, registry)
    assert (score.outcome, score.steps) == ("VERIFIED", 2)


def files_of(path):
    """The open files by which this process holds a path."""
    links = Path("/proc/self/fd").iterdir()
    return [int(link.name) for link in links if os.path.realpath(link) == str(path)]


def health(server):
    with railgym.connect(server.address) as client:
        return client.health()


def wait_until(holds):
    deadline = time.monotonic() + 20
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert held
