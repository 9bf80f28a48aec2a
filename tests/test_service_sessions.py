"""Sessions: how many, for how long, and that none of them knows of another."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import grpc
import pytest
import raw
from raw import TYPEWRITER, letters

import railgym
from env_server.env import Final, ToolCall
from env_server.log import episodes as logged_episodes
from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub


@pytest.fixture
def connect():
    """Opens plain channels, which close with the test."""
    channels = []

    def open_stub(server):
        channels.append(grpc.insecure_channel(server.address))
        return EnvServiceStub(channels[-1])

    yield open_stub
    for channel in channels:
        channel.close()


def wait_until(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def ended_in_log(server):
    """Why each session in a log ended, by its id."""
    found = {}
    for logged in logged_episodes(server.log_dir):
        if logged.ended is not None:
            found[logged.session_id] = railgym.codec.end_reason_from_proto(logged.ended.reason)
    return found


# How many (S1, S2, S14)


def test_a_full_server_says_so_at_once_and_has_room_after_a_close(serve, connect):
    envs = connect(serve(capacity=3))
    held = [raw.create(envs) for _ in range(3)]
    request = pb.CreateSessionRequest(env_id=TYPEWRITER)
    before = time.monotonic()
    refusal = raw.refusal(envs.CreateSession, request)
    assert time.monotonic() - before < 1
    assert refusal[:3] == (
        "RESOURCE_EXHAUSTED",
        "TOO_MANY_SESSIONS",
        {"current": "3", "max": "3"},
    )
    raw.close(envs, held[0])
    raw.reset(envs, raw.create(envs))
    raw.reset(envs, held[1])
    fork = pb.ForkSessionRequest(session_id=held[1])
    assert raw.refusal(envs.ForkSession, fork).reason == "TOO_MANY_SESSIONS"


def test_each_of_many_clients_types_its_own_text(server):
    def play(number):
        text = f"client {number}"
        with railgym.connect(server.address) as client, client.session(TYPEWRITER) as session:
            session.reset(options={"target": text, "finish": "final"})
            for action in letters(text, None):
                last = session.step(action)
            assert last.observation == f'{{"result":"{text}"}}'
            return session.id, session.final().reward

    with ThreadPoolExecutor(64) as pool:
        ids, rewards = zip(*pool.map(play, range(64)), strict=True)
    assert len(set(ids)) == 64
    assert set(rewards) == {1.0}


def test_no_id_is_handed_out_twice(serve, connect):
    envs = connect(serve(capacity=64))

    def churn(_):
        ids = []
        for _ in range(40):
            ids.append(raw.create(envs))
            raw.close(envs, ids[-1])
        return ids

    with ThreadPoolExecutor(16) as pool:
        ids = [session_id for some in pool.map(churn, range(16)) for session_id in some]
    assert len(set(ids)) == len(ids) == 640


@pytest.mark.parametrize("env_id", [TYPEWRITER, "railgym/Relational-v1", "CartPole-v1"])
def test_a_thousand_sessions_leave_nothing_behind(serve, connect, env_id):
    envs = connect(serve())

    def cycle(count):
        for number in range(count):
            session_id = raw.create(envs, env_id)
            raw.reset(envs, session_id, seed=number)
            raw.close(envs, session_id)

    cycle(50)
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    cycle(1_000)
    until = time.monotonic() + 20  # nobody waits for the end of an environment's process
    while len(os.listdir("/proc/self/fd")) > files + 2 and time.monotonic() < until:
        time.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= files + 2
    assert threading.active_count() <= threads + 2


# None knows of another (S3)


def test_worlds_do_not_mix(server, registry):
    calls = [
        ToolCall("find_users_by_name", '{"name": "a"}'),
        ToolCall("get_user_name", '{"user_id": 1}'),
        ToolCall("get_current_user_id"),
        ToolCall("find_foods_by_name", '{"food": "a"}'),
        ToolCall("nonsense"),
        Final("42"),
    ]

    def play(number):
        options = {"world": number // 2, "users": 40}
        with railgym.connect(server.address) as client:
            session = client.session("railgym/Relational-v1")
            session.reset(seed=number, options=options)
            seen = []
            for action in calls:
                transition = session.step(action)
                seen.append((transition, session.state_hash))
            session.close()
        here = raw.play_here(registry, calls, number, "railgym/Relational-v1", **options)
        assert seen == [(reply.transition, reply.state_hash) for reply in here]
        return seen[-1][1]

    with ThreadPoolExecutor(16) as pool:
        hashes = list(pool.map(play, range(16)))
    assert len(set(hashes)) == 8
    assert hashes[::2] == hashes[1::2]


def test_a_session_goes_on_over_new_connections(server, envs):
    session_id = raw.playing(envs, options={"target": "x" * 200})
    for number in range(1, 101):
        with grpc.insecure_channel(server.address) as channel:
            seen = raw.step(EnvServiceStub(channel), session_id, number, raw.letter("x"))
    assert seen.observation.json == f'{{"result":"{"x" * 100}"}}'
    assert raw.where(envs, session_id).step == 100


# For how long (leases, S4)


def test_an_idle_session_expires_and_is_told_apart_from_one_that_never_was(
    serve, connect, monkeypatch
):
    monkeypatch.setattr("env_server.service.server.REAP_SECONDS", 0.1)
    server = serve(lease_seconds=1, capacity=2)
    envs = connect(server)
    idle, used = raw.playing(envs), raw.playing(envs)
    wait_until(lambda: raw.where(envs, used) and idle in ended_in_log(server))
    assert ended_in_log(server) == {idle: "client_lost"}
    code, why, metadata, _ = raw.refusal(envs.Step, raw.step_request(idle, 1, raw.letter("d")))
    assert (code, why) == ("FAILED_PRECONDITION", "SESSION_EXPIRED")
    assert metadata["session_id"] == idle
    assert float(metadata["lease_seconds"]) == 1
    age = datetime.now(UTC) - datetime.fromisoformat(metadata["ended_at"])
    assert 0 <= age.total_seconds() < 60
    never = raw.refusal(envs.GetSession, pb.GetSessionRequest(session_id="0" * 32))
    assert (never.code, never.reason) == ("NOT_FOUND", "UNKNOWN_SESSION")
    raw.close(envs, idle)  # which is fine, and changes nothing
    assert ended_in_log(server) == {idle: "client_lost"}
    assert raw.create(envs), "expected its place to be free"


def test_the_lease_is_told_and_renewed_by_any_call(serve, connect):
    envs = connect(serve(lease_seconds=100))
    session_id = raw.create(envs)
    first = raw.where(envs, session_id)
    assert first.lease_seconds == 100
    left = first.lease_expire_time.ToDatetime(UTC) - datetime.now(UTC)
    assert 50 < left.total_seconds() <= 100
    time.sleep(0.02)
    raw.reset(envs, session_id)
    second = raw.where(envs, session_id)
    assert second.lease_expire_time.ToNanoseconds() > first.lease_expire_time.ToNanoseconds()


def test_a_session_with_a_call_at_work_is_not_idle(serve, connect, monkeypatch):
    monkeypatch.setattr("env_server.service.server.REAP_SECONDS", 0.1)
    server = serve(lease_seconds=1)
    envs = connect(server)
    session_id = raw.playing(envs, "envs_for_tests:Slow")
    for number in (1, 2, 3):
        raw.step(envs, session_id, number, 5)
    fork = pb.ForkSessionRequest(session_id=session_id)  # which takes the steps again: 1.5 s
    assert envs.ForkSession(fork, timeout=raw.SECONDS).step == 3
    assert raw.where(envs, session_id).step == 3
    assert not ended_in_log(server)


CLIENT = """
import os, signal, sys
import grpc
from queue import SimpleQueue
from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

rows = SimpleQueue()
replies = EnvServiceStub(grpc.insecure_channel(sys.argv[1])).Rollout(iter(rows.get, None))
session = pb.CreateSessionRequest(env_id="railgym/Typewriter-v1")
rows.put(pb.RolloutRequest(rows=[
    pb.RolloutAction(slot=0, open=pb.RolloutOpen(session=session)),
    pb.RolloutAction(slot=0, reset=pb.RolloutReset(seed=1)),
]))
print(next(replies).rows[0].opened.session_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_client_that_is_killed_on_a_stream_is_lost_and_not_done(serve, connect):
    server = serve()
    envs = connect(server)
    killed = subprocess.run(
        [sys.executable, "-c", CLIENT, server.address], capture_output=True, text=True
    )
    session_id = killed.stdout.strip()
    assert session_id, killed.stderr
    wait_until(lambda: ended_in_log(server) == {session_id: "client_lost"})
    request = pb.GetSessionRequest(session_id=session_id)
    assert raw.refusal(envs.GetSession, request).reason == "SESSION_EXPIRED"


# Two servers on one log


def test_a_session_belongs_to_one_server_at_a_time(serve, connect, tmp_path):
    first, second = serve(log_dir=tmp_path / "log"), serve(log_dir=tmp_path / "log")
    here, there = connect(first), connect(second)
    session_id = raw.playing(here, options={"target": "dog"})
    raw.step(here, session_id, 1, raw.letter("d"))
    code, why, metadata, _ = raw.refusal(
        there.Step, raw.step_request(session_id, 2, raw.letter("o"))
    )
    assert (code, why) == ("FAILED_PRECONDITION", "NOT_RESUMABLE")
    assert metadata == {"session_id": session_id, "detail": "another server holds it"}
    raw.step(here, session_id, 2, raw.letter("o"))
    raw.close(here, session_id)
    refusal = raw.refusal(there.GetSession, pb.GetSessionRequest(session_id=session_id))
    assert refusal.reason == "SESSION_CLOSED"


def test_another_server_goes_on_where_one_has_stopped(serve, connect, tmp_path):
    first, second = serve(log_dir=tmp_path / "log"), serve(log_dir=tmp_path / "log")
    here, there = connect(first), connect(second)
    session_id = raw.playing(here, options={"target": "dog"})
    raw.step(here, session_id, 1, raw.letter("d"))
    serve.stop(first)
    assert raw.step(there, session_id, 1, raw.letter("d")).observation.json == '{"result":"d"}'
    assert raw.step(there, session_id, 2, raw.letter("o")).observation.json == '{"result":"do"}'
    assert raw.step(there, session_id, 3, raw.letter("g")).terminated
    assert [logged.problem for logged in logged_episodes(second.log_dir)] == [None]


def test_a_lease_waits_while_no_server_is_there(serve, connect, tmp_path):
    first = serve(log_dir=tmp_path / "log", lease_seconds=3)
    one, other = (raw.playing(connect(first)) for _ in range(2))
    serve.stop(first)
    time.sleep(3)
    envs = connect(serve(log_dir=tmp_path / "log", lease_seconds=3))
    raw.step(envs, one, 1, raw.letter("d"))
    time.sleep(3.1)
    refusal = raw.refusal(envs.GetSession, pb.GetSessionRequest(session_id=other))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "SESSION_EXPIRED")


def test_a_creation_is_known_after_a_restart(serve, connect, tmp_path):
    first = serve(log_dir=tmp_path / "log")
    session_id = raw.create(connect(first), request_id="creation")
    serve.stop(first)
    envs = connect(serve(log_dir=tmp_path / "log"))
    assert raw.create(envs, request_id="creation") == session_id
    raw.close(envs, session_id)
    request = pb.CreateSessionRequest(env_id=TYPEWRITER, request_id="creation")
    assert raw.refusal(envs.CreateSession, request).reason == "BAD_REQUEST"
