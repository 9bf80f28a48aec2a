"""The server's limits: published, kept, and answered with a status, while the others play on."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest
import raw
from processes import Server
from raw import TYPEWRITER, letter

import railgym
from env_server.arguments import MAX_CHARACTERS
from env_server.env import ToolCall
from env_server.service.limits import Limits
from env_server.service.server import KEEPALIVE
from railgym.connection import MAX_MESSAGE_BYTES, OPTIONS
from railgym.spaces import MAX_OBSERVATION
from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

MEBIBYTE = 1024**2
NO_LIMIT = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@contextlib.contextmanager
def stub(server, options=()):
    """A connection of its own."""
    options = [*options, ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(server.address, options) as channel:
        yield EnvServiceStub(channel)


def count(envs):
    """How many sessions there are."""
    return envs.GetServerInfo(pb.GetServerInfoRequest(), timeout=raw.SECONDS).session_count


def memory():
    """Bytes in use, of both ends."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# What is published


def test_a_server_tells_its_limits(serve):
    limits = Limits(7.5, 2**31, 2**20, 100, 2**20)
    server = serve(capacity=5, lease_seconds=8, limits=limits)
    with railgym.connect(server.address) as client:
        client.session(TYPEWRITER)
        told = client.server_info()
    assert told == railgym.ServerInfo(
        version=railgym.__version__,
        limits=railgym.Limits(
            max_sessions=5,
            lease_seconds=8,
            step_seconds=7.5,
            max_message_bytes=2**20,
            max_argument_characters=MAX_CHARACTERS,
            max_observation_characters=MAX_OBSERVATION,
            min_free_log_bytes=2**20,
            max_concurrent_calls=100,
            max_env_bytes=2**31,
        ),
        session_count=1,
        endpoint="",
    )


def test_every_limit_has_a_value_by_default_and_the_client_takes_as_much(server):
    with railgym.connect(server.address) as client:
        limits = client.server_info().limits
    assert all(limits)
    assert limits.max_message_bytes == MAX_MESSAGE_BYTES


def test_every_limit_of_the_wire_reaches_the_client():
    assert set(railgym.Limits._fields) == set(pb.Limits.DESCRIPTOR.fields_by_name)


# Sizes


def test_a_message_over_the_limit_is_refused(serve):
    server = serve(limits=Limits(message_bytes=MEBIBYTE))
    with stub(server, NO_LIMIT) as envs:
        session_id = raw.playing(envs)
        action = ToolCall("type_letter", "x" * MEBIBYTE)
        refusal = raw.refusal(envs.Step, raw.step_request(session_id, 1, action))
        assert refusal.code == "RESOURCE_EXHAUSTED"
        assert raw.step(envs, session_id, 1, letter("x")).observation.json


def test_an_answer_over_the_limit_is_refused(serve):
    server = serve(limits=Limits(message_bytes=2_000))
    with stub(server, NO_LIMIT) as envs:
        assert raw.refusal(envs.ListEnvs, pb.ListEnvsRequest()).code == "RESOURCE_EXHAUSTED"
        assert raw.create(envs, "railgym/TypewriterPolicy-v1", labels={"k": "v"})


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_bomb_is_refused(serve, compression):
    server = serve()
    with stub(server, NO_LIMIT) as envs, stub(server) as other:
        session_id, playing = raw.playing(envs), raw.playing(other)
        action = ToolCall("type_letter", " " * (200 * MEBIBYTE))
        request = raw.step_request(session_id, 1, action)
        before = memory()
        with pytest.raises(grpc.RpcError) as caught:
            envs.Step(request, timeout=raw.SECONDS, compression=compression)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert memory() - before < 150 * MEBIBYTE
        assert raw.step(other, playing, 1, letter("x")).observation.json


@pytest.mark.parametrize("size", [20_000, MEBIBYTE])
def test_large_headers_are_refused(server, size):
    with stub(server, [("grpc.max_metadata_size", 4 * MEBIBYTE)]) as envs, stub(server) as other:
        session_id = raw.playing(other)
        with pytest.raises(grpc.RpcError) as caught:
            envs.ListEnvs(pb.ListEnvsRequest(), timeout=5, metadata=[("x", "y" * size)])
        assert caught.value.code() in (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.UNAVAILABLE,
        )
        assert raw.step(other, session_id, 1, letter("x")).observation.json


# Calls at once


@contextlib.contextmanager
def held(envs, count):
    """Streams that send nothing."""
    done = threading.Event()

    def silence():
        done.wait()
        yield from ()

    streams = [envs.Rollout(silence(), timeout=raw.SECONDS) for _ in range(count)]
    try:
        yield streams
    finally:
        done.set()
        for stream in streams:
            stream.cancel()


def wait_for(true, what):
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline, f"expected {what}"
        time.sleep(0.05)


def test_calls_over_the_limit_are_refused_at_once(serve):
    server = serve(limits=Limits(calls=20))
    with stub(server) as first, stub(server) as second, stub(server) as third:
        session_id = raw.playing(third)
        with held(first, 10), held(second, 10):
            time.sleep(0.5)
            began = time.monotonic()
            refusal = raw.refusal(third.Step, raw.step_request(session_id, 1, letter("x")))
            assert refusal.code == "RESOURCE_EXHAUSTED"
            assert time.monotonic() - began < 1
        wait_for(lambda: _goes_on(third, session_id), "room for calls again")


def _goes_on(envs, session_id):
    with contextlib.suppress(grpc.RpcError):
        return bool(raw.step(envs, session_id, 1, letter("x")).observation.json)
    return False


def test_thousands_of_calls_that_come_at_once_are_all_answered(tmp_path):
    server = Server(tmp_path / "log")
    server.wait_until_it_serves()
    with contextlib.ExitStack() as stack:
        stack.callback(server.kill)
        clients = [stack.enter_context(stub(server)) for _ in range(4)]
        for envs in clients:
            count(envs)
        server.process.send_signal(signal.SIGSTOP)  # until all of them are there
        calls = [
            envs.GetServerInfo.future(pb.GetServerInfoRequest(), timeout=raw.SECONDS)
            for envs in clients * 1_000
        ]
        time.sleep(0.5)
        server.process.send_signal(signal.SIGCONT)
        assert {call.code() for call in calls} == {grpc.StatusCode.OK}


def test_one_connection_gets_at_most_half_of_the_calls(serve):
    server = serve(limits=Limits(calls=20))
    with stub(server) as greedy, stub(server) as other:
        with held(greedy, 200):
            time.sleep(0.5)
            session_id = raw.playing(other)
            assert raw.step(other, session_id, 1, letter("x")).observation.json
            with pytest.raises(grpc.RpcError) as caught:
                greedy.ListEnvs(pb.ListEnvsRequest(), timeout=0.5)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        wait_for(lambda: _answers(greedy), "room on the connection again")


def _answers(envs):
    with contextlib.suppress(grpc.RpcError):
        return bool(envs.ListEnvs(pb.ListEnvsRequest(), timeout=1).envs)
    return False


def test_many_silent_streams_hold_little(serve):
    server = serve()
    with stub(server) as greedy, stub(server) as other:
        session_id = raw.playing(other)
        before = memory()
        with held(greedy, 500):
            time.sleep(0.5)
            assert raw.step(other, session_id, 1, letter("x")).observation.json
            assert memory() - before < 500 * 200_000  # both ends of them, in this process


def test_sessions_of_a_silent_stream_expire(serve, monkeypatch):
    monkeypatch.setattr("env_server.service.server.REAP_SECONDS", 0.1)
    server = serve(lease_seconds=0.5)
    done = threading.Event()

    def rows():
        opening = pb.RolloutOpen(session=pb.CreateSessionRequest(env_id=TYPEWRITER))
        yield pb.RolloutRequest(rows=[pb.RolloutAction(slot=0, open=opening)])
        done.wait()

    with stub(server) as envs:
        stream = envs.Rollout(rows(), timeout=raw.SECONDS)
        (opened,) = next(stream).rows
        get = pb.GetSessionRequest(session_id=opened.opened.session_id)
        time.sleep(1.5)
        assert raw.refusal(envs.GetSession, get).reason == "SESSION_EXPIRED"
        done.set()
        stream.cancel()


# Bytes that come slowly


def test_slow_connections_hold_up_nobody(server, envs):
    host, _, port = server.address.rpartition(":")
    session_id = raw.playing(envs)
    frame = b"\x00\x10\x00\x00\x00\x00\x00\x00\x01"  # the head of 4 KiB of data that never come
    with contextlib.ExitStack() as around:
        for number in range(50):
            one = around.enter_context(socket.create_connection((host, int(port)), 5))
            one.sendall((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) + frame)[: number + 1])
        began = time.monotonic()
        assert raw.step(envs, session_id, 1, letter("x")).observation.json
        assert time.monotonic() - began < 5


# A disk that is short


def test_a_short_disk_refuses_before_anything_is_done(serve, tmp_path):
    free = shutil.disk_usage(tmp_path).free
    server = serve(limits=Limits(free_log_bytes=2 * free))
    with stub(server) as envs:
        refusal = raw.refusal(envs.CreateSession, pb.CreateSessionRequest(env_id=TYPEWRITER))
        assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "LOG_UNWRITABLE")
        assert count(envs) == 0
        assert envs.ListEnvs(pb.ListEnvsRequest()).envs


def test_a_disk_that_becomes_short_stops_steps_until_there_is_room(serve, monkeypatch):
    server = serve()
    short = os.statvfs(server.log_dir)
    with stub(server) as envs:
        session_id = raw.playing(envs, options={"target": "xxx"})
        raw.step(envs, session_id, 1, letter("x"))
        full = os.statvfs_result((*short[:4], 0, *short[5:]))
        with monkeypatch.context() as patch:
            patch.setattr("env_server.service.limits.os.statvfs", lambda _: full)
            time.sleep(0.3)
            for rpc, request in (
                (envs.Step, raw.step_request(session_id, 2, letter("x"))),
                (envs.Reset, raw.reset_request(session_id)),
                (envs.ForkSession, pb.ForkSessionRequest(session_id=session_id)),
                (envs.RecordClaim, pb.RecordClaimRequest(session_id=session_id, claim_json="{}")),
            ):
                assert raw.refusal(rpc, request).reason == "LOG_UNWRITABLE"
            assert raw.where(envs, session_id).step == 1
        time.sleep(0.3)
        assert raw.step(envs, session_id, 2, letter("x")).observation.json
    assert raw.steps_in(server.log_dir) == {(f"{session_id}.1", n): 1 for n in (1, 2)}


# A client that is gone

CLIENT = """
import sys, time
import railgym
client = railgym.connect(sys.argv[1])
session = client.session("railgym/Typewriter-v1")
session.reset(seed=1)
print(session.id, flush=True)
time.sleep(600)
"""


def test_the_slot_of_a_killed_client_is_free_after_its_lease(serve, monkeypatch):
    monkeypatch.setattr("env_server.service.server.REAP_SECONDS", 0.1)
    server = serve(capacity=1, lease_seconds=1)
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, server.address], stdout=subprocess.PIPE, text=True
    )
    session_id = client.stdout.readline().strip()
    client.send_signal(signal.SIGKILL)
    client.communicate()
    with stub(server) as envs:
        create = pb.CreateSessionRequest(env_id=TYPEWRITER)
        assert raw.refusal(envs.CreateSession, create).reason == "TOO_MANY_SESSIONS"
        began = time.monotonic()
        wait_for(lambda: count(envs) == 0, "room")
        assert time.monotonic() - began < 1 + 2
        assert raw.create(envs)
        gone = raw.refusal(envs.Step, raw.step_request(session_id, 1, letter("x")))
        assert (gone.reason, gone.metadata["lease_seconds"]) == ("SESSION_EXPIRED", "1")


def test_a_peer_that_is_gone_without_a_word_is_noticed_by_keepalive(serve, monkeypatch):
    """A stream through a relay that swallows every byte; the lease is far longer."""
    options = [("grpc.keepalive_time_ms", 1_000), ("grpc.keepalive_timeout_ms", 500)]
    options.append(("grpc.http2.ping_timeout_ms", 500))
    monkeypatch.setattr("env_server.service.server.KEEPALIVE", options)
    monkeypatch.setattr("env_server.service.server.REAP_SECONDS", 0.1)
    server = serve(lease_seconds=300)
    done = threading.Event()

    def rows():
        opening = pb.RolloutOpen(session=pb.CreateSessionRequest(env_id=TYPEWRITER))
        yield pb.RolloutRequest(rows=[pb.RolloutAction(slot=0, open=opening)])
        done.wait()

    with (
        Relay(server.address) as relay,
        stub(server) as envs,
        grpc.insecure_channel(relay.address) as channel,
    ):
        stream = EnvServiceStub(channel).Rollout(rows(), timeout=raw.SECONDS)
        (opened,) = next(stream).rows
        relay.swallow()
        get = pb.GetSessionRequest(session_id=opened.opened.session_id)
        assert count(envs) == 1
        wait_for(lambda: count(envs) == 0, "the session to end with its connection")
        assert raw.refusal(envs.GetSession, get).reason == "SESSION_EXPIRED"
        done.set()
        stream.cancel()


class Relay:
    """Hands on every byte between a client and a server, until it swallows them."""

    def __init__(self, server):
        self._server = server.rpartition(":")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._swallows = threading.Event()
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()
        for one in self._sockets:
            one.close()

    def swallow(self):
        self._swallows.set()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._server[0], int(self._server[2])))
                self._sockets += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if not self._swallows.is_set():
                    sink.sendall(data)


def test_both_ends_send_keepalives_that_the_other_bears():
    here, there = dict(KEEPALIVE), dict(OPTIONS)
    waits = "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"  # it takes both
    for name in ("grpc.keepalive_time_ms", *waits):
        assert here[name] == there[name]
    least = here["grpc.http2.min_recv_ping_interval_without_data_ms"]
    assert least < there["grpc.keepalive_time_ms"], "or the server hangs up on its clients"
