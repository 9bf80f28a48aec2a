"""Several workers behind one address, of which any may die: one state, each step once (S6, S8)."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import raw
from processes import free_port

import railgym
from env_server.log import is_live, read
from env_server.scoring.score import score_log
from railgym.errors import from_rpc_error
from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

CLIENTS = 32
STEPS = 10
ANY = {"target": "x" * 100, "finish": "final"}
SERVE = [sys.executable, "-m", "env_server.cli", "serve", "--log-level", "error"]


class Workers:
    """Two workers on one log, to be started again and again."""

    def __init__(self, log_dir):
        self.log_dir = log_dir
        self.address = f"127.0.0.1:{free_port()}"
        self.start()

    def start(self):
        words = [*SERVE, "--workers", "2", "--grace", "5", "--env", "envs_for_tests:Slow"]
        words += ["--address", self.address, "--log-dir", str(self.log_dir)]
        path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        self.process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        assert said == f"railgym serves on {self.address} with 2 workers\n"

    def stop(self):
        self.process.terminate()
        code = self.process.wait(30)
        self.process.stdout.close()
        return code

    def pids(self):
        """The process of each worker that lives, by its endpoint."""
        notes = [self.note(path) for path in self.log_dir.glob("*.rgl") if is_live(path)]
        return {note["endpoint"]: note["pid"] for note in notes}

    def note(self, segment):
        return json.loads((self.log_dir / "workers" / f"{segment.stem}.json").read_text())

    def kill(self, endpoint):
        pid = self.pids()[endpoint]
        os.kill(pid, signal.SIGKILL)
        self.wait_until(lambda pids: pid not in pids.values())

    def wait_until(self, holds):
        deadline = time.monotonic() + 30
        while not holds(self.pids()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert holds(self.pids())

    def wait_until_both_serve(self):
        self.wait_until(lambda pids: len(pids) == 2)


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    workers = Workers(tmp_path_factory.mktemp("workers") / "log")
    yield workers
    assert workers.stop() == 0


def calling(address):
    """A connection of its own, which another worker may get."""
    return grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])


def other(workers, endpoint):
    (address,) = workers.pids().keys() - {endpoint}
    return address


def created(workers, **fields):
    """A session whose first episode has begun, and its endpoint."""
    with calling(workers.address) as channel:
        envs = EnvServiceStub(channel)
        request = pb.CreateSessionRequest(env_id=raw.TYPEWRITER, **fields)
        reply = envs.CreateSession(request, timeout=raw.SECONDS)
    with calling(reply.endpoint) as channel:
        raw.reset(EnvServiceStub(channel), reply.session_id, ANY, seed=1)
    return reply.session_id, reply.endpoint


def test_one_session_over_reconnecting_channels_reaches_one_state(workers):
    workers.wait_until_both_serve()
    session_id, endpoint = created(workers)
    answers = Counter()
    for number in range(1, 101):
        request = raw.step_request(session_id, number, raw.letter("x"))
        with calling(workers.address) as front, calling(endpoint) as home:
            try:
                reply = EnvServiceStub(front).Step(request, timeout=raw.SECONDS)
                answers["taken"] += 1
            except grpc.RpcError as e:
                refusal = from_rpc_error(e)
                assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "WRONG_ENDPOINT")
                assert refusal.metadata == {"session_id": session_id, "endpoint": endpoint}
                answers["refused"] += 1
                reply = EnvServiceStub(home).Step(request, timeout=raw.SECONDS)
        assert json.loads(reply.transition.observation.json) == {"result": "x" * number}
    assert set(answers) == {"taken", "refused"}, "expected the front to reach both workers"


def test_a_worker_knows_at_once_what_another_one_did(workers):
    session_id, endpoint = created(workers)
    request = pb.GetSessionRequest(session_id=session_id)
    with calling(endpoint) as home, calling(other(workers, endpoint)) as away:
        here, there = EnvServiceStub(home), EnvServiceStub(away)
        assert raw.refusal(there.GetSession, request).reason == "WRONG_ENDPOINT"
        raw.close(here, session_id)
        assert raw.refusal(there.GetSession, request).reason == "SESSION_CLOSED"
        unknown = pb.GetSessionRequest(session_id="0" * 32)
        assert raw.refusal(there.GetSession, unknown).reason == "UNKNOWN_SESSION"


def test_a_client_finds_a_session_from_anywhere(workers):
    for _ in range(8):
        with railgym.connect(workers.address) as one, railgym.connect(workers.address) as another:
            session = one.session(env_id=raw.TYPEWRITER)
            session.reset(options=ANY)
            session.call("type_letter", letter="d")
            resumed = another.resume(session.id)
            resumed.claim({"model": "m"})
            fork = resumed.fork()
            assert resumed.call("type_letter", letter="o").observation == '{"result":"do"}'
            assert fork.call("type_letter", letter="u").observation == '{"result":"du"}'
            session.close()


def test_a_frozen_worker_keeps_its_sessions(workers):
    session_id, endpoint = created(workers)
    frozen = workers.pids()[endpoint]
    step = raw.step_request(session_id, 1, raw.letter("d"))
    with calling(endpoint) as home, calling(other(workers, endpoint)) as away:
        os.kill(frozen, signal.SIGSTOP)
        try:
            refusal = raw.refusal(EnvServiceStub(away).Step, step)
            assert (refusal.reason, refusal.metadata["endpoint"]) == ("WRONG_ENDPOINT", endpoint)
            waiting = EnvServiceStub(home).Step.future(step, timeout=raw.SECONDS)
            time.sleep(0.2)
            assert not waiting.done()
        finally:
            os.kill(frozen, signal.SIGCONT)
        assert json.loads(waiting.result().transition.observation.json) == {"result": "d"}


def test_a_creation_that_is_repeated_after_its_worker_died_gives_the_same_session(workers):
    session_id, endpoint = created(workers, request_id="creation")
    peer = other(workers, endpoint)
    workers.kill(endpoint)
    request = pb.CreateSessionRequest(env_id=raw.TYPEWRITER, request_id="creation")
    with calling(peer) as channel:
        again = EnvServiceStub(channel).CreateSession(request, timeout=raw.SECONDS)
    assert (again.session_id, again.endpoint) == (session_id, peer)
    workers.wait_until_both_serve()


def type_through(address, number, begun, killed):
    """Types letters until some time after a worker died; gives the session and its steps."""
    letters, typed, after = random.Random(number), "", 0
    with railgym.connect(address, patience_seconds=60) as client:
        session = client.session(env_id=raw.TYPEWRITER)
        session.reset(seed=number, options={"target": "x" * 1_000, "finish": "final"})
        begun.wait(60)
        while after < STEPS:
            after += killed.is_set()
            letter = letters.choice("abc")
            typed += letter
            seen = session.call("type_letter", letter=letter)
            assert json.loads(seen.observation) == {"result": typed}
        session.final("")
        session.close()
        return session.id, len(typed) + 1


def test_every_client_finishes_its_episode_through_the_death_of_its_worker(workers, registry):
    workers.wait_until_both_serve()
    before = {path: path.stat().st_size for path in workers.log_dir.glob("*.rgl")}
    begun, killed = threading.Barrier(CLIENTS + 1), threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        calls = [
            pool.submit(type_through, workers.address, number, begun, killed)
            for number in range(CLIENTS)
        ]
        begun.wait(60)
        live = filter(is_live, workers.log_dir.glob("*.rgl"))
        busiest = max(live, key=lambda path: path.stat().st_size - before.get(path, 0))
        workers.kill(workers.note(busiest)["endpoint"])
        killed.set()
        played = dict(call.result(90) for call in calls)

    taken = {
        key: times
        for key, times in raw.steps_in(workers.log_dir).items()
        if key[0].removesuffix(".1") in played
    }
    assert taken == {
        (f"{session_id}.1", number): 1
        for session_id, steps in played.items()
        for number in range(1, steps + 1)
    }
    written = {(one.event.session_id, one.path) for one in read(workers.log_dir)}
    moved = Counter(session_id for session_id, _ in written if session_id in played)
    assert max(moved.values()) > 1, "expected sessions that another worker took up"
    scores = list(score_log(workers.log_dir, registry))
    assert {score.outcome for score in scores} == {"VERIFIED"}
    assert played.keys() <= {score.episode_id.removesuffix(".1") for score in scores}


def test_sigterm_drains_all_workers_and_the_next_ones_go_on(workers):
    workers.wait_until_both_serve()
    with railgym.connect(workers.address) as client:
        session = client.session(env_id=raw.TYPEWRITER)
        session.reset(options=ANY)
        session.call("type_letter", letter="d")
        with ThreadPoolExecutor(4) as pool:
            slow = [client.session(env_id="envs_for_tests:Slow") for _ in range(4)]
            for one in slow:
                one.reset(seed=1)
            calls = [pool.submit(one.step, 9) for one in slow]
            time.sleep(0.3)
            assert workers.stop() == 0
            assert [call.result().reward for call in calls] == [9] * 4
        steps = raw.steps_in(workers.log_dir)
        assert [steps[f"{one.id}.1", 1] for one in slow] == [1] * 4
        workers.start()
        assert session.call("type_letter", letter="o").observation == '{"result":"do"}'
        assert slow[0].step(1).reward == 1


def test_no_worker_outlives_its_supervisor(tmp_path):
    workers = Workers(tmp_path / "log")
    workers.process.kill()
    workers.process.wait(30)
    workers.process.stdout.close()
    workers.wait_until(lambda pids: not pids)
    ports = [int(workers.address.rpartition(":")[2]) + number for number in range(3)]
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


def test_a_port_in_use_is_told_at_once(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        for front in (port, port - 1):  # the front itself, or the first endpoint
            words = [*SERVE, "--workers", "2", "--address", f"127.0.0.1:{front}"]
            words += ["--log-dir", str(tmp_path)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60)
            assert done.returncode == 3
            assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_clients_must_be_told_of_a_host_that_they_can_reach(tmp_path):
    words = [*SERVE, "--workers", "2", "--address", "0.0.0.0:0", "--insecure"]
    words += ["--log-dir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--advertise" in done.stderr
