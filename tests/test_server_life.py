"""A server begins when it can, and ends in order: what it says meanwhile, and what goes on."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from queue import SimpleQueue

import grpc
import pytest
import raw
from grpc_health.v1 import health_pb2, health_pb2_grpc
from processes import Server

from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def start(tmp_path):
    """Starts a server in a process of its own, and opens a channel to it."""
    servers, channels = [], []

    def begin(*envs):
        servers.append(Server(tmp_path / "log", *(f"envs_for_tests:{env}" for env in envs)))
        soon = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)]
        channels.append(grpc.insecure_channel(servers[-1].address, soon))
        return servers[-1], channels[-1]

    yield begin
    for channel in channels:
        channel.close()
    for server in servers:
        server.process.kill()
        server.process.wait(30)


def watch(channel):
    """What the server says of itself, as it changes."""
    health = health_pb2_grpc.HealthStub(channel)
    return health.Watch(health_pb2.HealthCheckRequest(), timeout=60, wait_for_ready=True)


def test_it_does_not_serve_before_its_environments_are_loaded(start):
    _, channel = start("SlowStart")
    changes = watch(channel)
    assert [next(changes).status, next(changes).status] == [NOT_SERVING, SERVING]
    assert raw.playing(EnvServiceStub(channel), "envs_for_tests:SlowStart")
    changes.cancel()


def test_sigterm_lets_calls_finish_and_says_so_first(start):
    server, channel = start("Slow")
    server.wait_until_it_serves()
    envs = EnvServiceStub(channel)
    slow = raw.playing(envs, "envs_for_tests:Slow")
    other = raw.playing(envs, options={"target": "dog"})
    raw.step(envs, other, 1, raw.letter("d"))
    changes = watch(channel)
    assert next(changes).status == SERVING
    step = envs.Step.future(raw.step_request(slow, 1, 9), timeout=30)
    time.sleep(0.2)
    server.process.terminate()
    assert next(changes).status == NOT_SERVING
    assert not step.done(), "expected the health to change before the calls end"
    changes.cancel()
    assert step.result().transition.reward == 9
    assert server.process.wait(30) == 0

    server.start_again()
    request = raw.step_request(other, 2, raw.letter("o"))
    reply = envs.Step(request, timeout=60, wait_for_ready=True)
    assert reply.transition.observation.json == '{"result":"do"}'
    assert raw.step(envs, slow, 1, 9).reward == 9
    steps = {(f"{slow}.1", 1): 1, (f"{other}.1", 1): 1, (f"{other}.1", 2): 1}
    assert raw.steps_in(server.log_dir) == steps


def test_an_environment_that_hangs_does_not_hold_up_the_end(start):
    server, channel = start("Stuck")
    server.wait_until_it_serves()
    envs = EnvServiceStub(channel)
    session_id = raw.playing(envs, "envs_for_tests:Stuck")
    with pytest.raises(grpc.RpcError):
        envs.Step(raw.step_request(session_id, 1, 1), timeout=0.3)
    assert raw.playing(envs), "expected others to go on"
    assert server.terminate() == 0


def test_a_stream_that_is_open_goes_on_in_the_drain_and_opens_no_new_session(serve):
    server = serve(grace_seconds=10)
    rows = SimpleQueue()

    def ask(slot, kind):
        rows.put(pb.RolloutRequest(rows=[pb.RolloutAction(slot=slot, **kind)]))
        return next(outcomes).rows[0]

    opening = {"open": pb.RolloutOpen(session=pb.CreateSessionRequest(env_id=raw.TYPEWRITER))}
    with grpc.insecure_channel(server.address) as channel, ThreadPoolExecutor() as pool:
        outcomes = EnvServiceStub(channel).Rollout(iter(rows.get, None), timeout=30)
        assert ask(0, opening).HasField("opened")
        ask(0, {"reset": pb.RolloutReset(seed=1)})
        stopping = pool.submit(serve.stop, server)
        refused = next(last for slot in count(1) if (last := ask(slot, opening)).HasField("error"))
        assert refused.error.code == grpc.StatusCode.UNAVAILABLE.value[0]
        assert refused.error.reason == pb.ERROR_REASON_DRAINING
        step = pb.RolloutStep(action=raw.message(raw.letter("d")))
        assert ask(0, {"step": step}).HasField("stepped")
        assert not stopping.done()
        rows.put(None)
        assert list(outcomes) == []
        stopping.result(30)
