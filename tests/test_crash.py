"""A server that dies, drains or cannot write: what it acknowledged stands in the log, once."""

import itertools
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import raw
from processes import Server

import railgym
from env_server.env import Final, ToolCall
from env_server.gold import play_gold
from env_server.log import Damage, read
from env_server.log import episodes as logged_episodes
from env_server.scoring.score import score_log
from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

SLOW = "envs_for_tests:Slow"
CLIENTS = 64


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path / "log", SLOW)
    server.wait_until_it_serves()
    yield server
    server.process.kill()
    server.process.wait(30)


@pytest.fixture
def envs(server):
    """The bare service, which finds the server again at once when it is restarted."""
    soon = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)]
    with grpc.insecure_channel(server.address, soon) as channel:
        yield EnvServiceStub(channel)


# Killed


def plan(number, registry):
    """What a client does: `(session, reset, actions)`; some have a task, all end with an answer."""
    rng = random.Random(number)
    if number % 4 == 0:
        names = sorted(name for name, task in registry.tasks.items() if task.level == "L3")
        task = registry.task(rng.choice(names))
        return {"task_id": task.task_id}, {"seed": 0}, play_gold(task, registry)[0].actions
    env_id = ("railgym/Typewriter-v1", "railgym/Relational-v1", "railgym/MultiverseMath-v1")[
        number % 4 - 1
    ]
    env = registry.env(env_id).make()
    env.action_space.seed(number)
    actions = [env.action_space.sample() for _ in range(38)]
    actions.insert(rng.randrange(38), ToolCall("nonsense", "{"))
    options = {"finish": "final"} if "Typewriter" in env_id else {}
    return {"env_id": env_id}, {"seed": number, "options": options}, [*actions, Final("7")]


def test_every_client_finishes_its_episode_through_a_kill(server, registry):
    plans = [plan(number, registry) for number in range(CLIENTS)]
    steps = sum(len(actions) for *_, actions in plans)
    acknowledged = itertools.count()
    half_way = threading.Event()

    def play(opening, reset, actions):
        with railgym.connect(server.address, patience_seconds=60) as client:
            session = client.session(**opening)
            session.reset(**reset)
            seen = []
            for action in actions:
                seen.append((session.step(action), session.state_hash, session.end_reason))
                if next(acknowledged) == steps // 2:
                    half_way.set()
            session.close()
            return session.id, seen

    with ThreadPoolExecutor(CLIENTS) as pool:
        calls = [pool.submit(play, *one) for one in plans]
        assert half_way.wait(60)
        server.kill()
        server.start_again()
        played = [call.result(90) for call in calls]
    assert server.terminate() == 0

    for (opening, reset, actions), (_, seen) in zip(plans, played, strict=True):
        replies = raw.play_here(
            registry, actions, reset["seed"], **opening, **reset.get("options", {})
        )
        assert seen == [tuple(reply) for reply in replies]
    rewards = [seen[-1][0].reward for _, seen in played]
    assert rewards[::4] == [1.0] * (CLIENTS // 4), "expected gold to earn its reward"

    once = {
        (f"{session_id}.1", n): 1 for session_id, seen in played for n in range(1, len(seen) + 1)
    }
    assert raw.steps_in(server.log_dir) == once
    assert {logged.problem for logged in logged_episodes(server.log_dir)} == {None}
    scores = list(score_log(server.log_dir, registry))
    assert [score.outcome for score in scores] == ["VERIFIED"] * CLIENTS
    assert all(score.valid for score in scores)
    steps_in = Counter(
        record.path for record in read(server.log_dir) if record.event.HasField("step_taken")
    )
    assert len(steps_in) == 2, "expected steps from before the kill and from after it"


def test_every_call_in_flight_ends_when_the_server_is_killed(server, envs):
    sessions = [raw.playing(envs, SLOW) for _ in range(100)]
    before = time.monotonic()
    calls = [envs.Step.future(raw.step_request(one, 1, 9), timeout=30) for one in sessions]
    time.sleep(0.3)
    server.kill()
    codes = [call.code() for call in calls]
    assert len(codes) == 100
    assert set(codes) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert time.monotonic() - before < 35


def test_a_session_with_a_damaged_record_is_not_resumed_and_the_others_are(server, envs):
    sessions = [raw.playing(envs, options={"target": "doggy"}) for _ in range(3)]
    for number, letter in enumerate("dog", start=1):
        for session_id in sessions:
            raw.step(envs, session_id, number, raw.letter(letter))
    server.kill()
    damaged = sessions[1]
    record = next(
        record
        for record in read(server.log_dir)
        if record.event.session_id == damaged and record.event.step_taken.step == 2
    )
    data = bytearray(record.path.read_bytes())
    data[record.offset + 20] ^= 1
    record.path.write_bytes(data)
    assert any(isinstance(item, Damage) for item in read(server.log_dir))

    server.start_again()
    request = pb.GetSessionRequest(session_id=sessions[0])
    assert envs.GetSession(request, timeout=60, wait_for_ready=True).step == 3
    assert raw.step(envs, sessions[0], 4, raw.letter("g")).observation.json == '{"result":"dogg"}'
    assert raw.step(envs, sessions[2], 3, raw.letter("g")).observation.json == '{"result":"dog"}'
    for rpc, request in [
        (envs.Step, raw.step_request(damaged, 4, raw.letter("g"))),
        (envs.GetSession, pb.GetSessionRequest(session_id=damaged)),
    ]:
        code, why, metadata, _ = raw.refusal(rpc, request)
        assert (code, why) == ("FAILED_PRECONDITION", "NOT_RESUMABLE")
        assert metadata["session_id"] == damaged
        assert str(record.path) in metadata["detail"]
    raw.close(envs, damaged)


@pytest.mark.parametrize("kind", ["session_opened", "episode_started"])
def test_damage_before_the_first_step_is_told_as_damage(server, envs, kind):
    session_id = raw.playing(envs)
    raw.step(envs, session_id, 1, raw.letter("d"))
    server.kill()
    record = next(record for record in read(server.log_dir) if record.event.HasField(kind))
    data = bytearray(record.path.read_bytes())
    data[record.offset + 20] ^= 1
    record.path.write_bytes(data)
    server.start_again()
    with pytest.raises(grpc.RpcError) as caught:
        envs.GetSession(
            pb.GetSessionRequest(session_id=session_id), timeout=60, wait_for_ready=True
        )
    assert railgym.errors.from_rpc_error(caught.value).reason == "NOT_RESUMABLE"


# Out of space


def test_a_log_that_cannot_be_written_loses_nothing(server, envs, registry):
    assert server.terminate() == 0
    server.start_with("ulimit -f 32")  # KiB of a file
    request = pb.CreateSessionRequest(env_id=raw.TYPEWRITER)
    session_id = envs.CreateSession(request, timeout=60, wait_for_ready=True).session_id
    raw.reset(envs, session_id, seed=1, options={"target": "x" * 1_000})
    acknowledged, caught = 0, None
    while caught is None:
        call = envs.Step.future(raw.step_request(session_id, acknowledged + 1, raw.letter("x")))
        caught = call.exception()
        acknowledged += caught is None
        assert acknowledged < 1_000
    assert acknowledged > 10
    step = raw.step_request(session_id, acknowledged + 1, raw.letter("x"))
    for rpc, again in [
        (envs.Step, step),
        (envs.Step, step),
        (envs.CloseSession, pb.CloseSessionRequest(session_id=session_id)),
        (envs.CloseSession, pb.CloseSessionRequest(session_id=session_id)),
    ]:
        refusal = raw.refusal(rpc, again)
        assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "LOG_UNWRITABLE")
    assert envs.ListEnvs(pb.ListEnvsRequest(), timeout=30).envs
    assert server.terminate() == 0

    assert raw.steps_in(server.log_dir) == {
        (f"{session_id}.1", n + 1): 1 for n in range(acknowledged)
    }
    (score,) = score_log(server.log_dir, registry)
    assert (score.outcome, score.steps) == ("VERIFIED", acknowledged)
    server.start_again()
    reply = envs.Step(step, timeout=60, wait_for_ready=True).transition
    assert reply.observation.json == f'{{"result":"{"x" * (acknowledged + 1)}"}}'
