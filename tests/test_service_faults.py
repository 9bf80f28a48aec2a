"""An environment that fails costs its own episode, and a slow one holds up nobody (S11)."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest
import raw
from envs_for_tests import SECRET, Broken
from raw import TYPEWRITER, letter

import railgym
from env_server.env import ToolCall
from env_server.errors import EnvError
from env_server.registry import Registry
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2
from railgym.v1 import episode_service_pb2 as episode_service
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

BROKEN, SLOW = "envs_for_tests:Broken", "envs_for_tests:Slow"

FAULTS = {
    Broken.RAISES: "ZeroDivisionError",
    Broken.EXITS: "SystemExit",
    Broken.BAD_INFO: "TypeError",
    Broken.HUGE_INFO: "ValueError",
    Broken.STOPS_ITERATION: "StopIteration",
}


def failure(rpc, request):
    """Makes a call that fails on the server, and checks that the client learns nothing of why."""
    with pytest.raises(grpc.RpcError) as caught:
        rpc(request, timeout=raw.SECONDS)
    told = f"{caught.value.details()} {caught.value.trailing_metadata()}"
    assert SECRET not in told
    assert not any(name in told for name in FAULTS.values())
    return railgym.errors.from_rpc_error(caught.value)


def events(episodes, episode_id):
    request = episode_service.ReadEpisodeRequest(episode_id=episode_id)
    return [reply.event for reply in episodes.ReadEpisode(request, timeout=raw.SECONDS)]


def score(episodes, episode_id):
    request = episode_service.ScoreEpisodesRequest(episode_ids=[episode_id])
    (reply,) = episodes.ScoreEpisodes(request, timeout=raw.SECONDS)
    return reply.score


@pytest.mark.parametrize(("action", "error"), FAULTS.items(), ids=FAULTS.values())
def test_a_step_that_fails_ends_the_episode_and_is_no_score(envs, episodes, action, error):
    other, session_id = raw.playing(envs), raw.playing(envs, BROKEN)
    raw.step(envs, session_id, 1, 7)
    failed = failure(envs.Step, raw.step_request(session_id, 2, action))
    assert isinstance(failed, railgym.EnvError)
    assert failed.metadata == {"session_id": session_id}

    *_, fault, end = events(episodes, f"{session_id}.1")
    assert fault.server_fault.error == error
    assert end.episode_ended.reason == episode_pb2.END_REASON_ENV_ERROR
    judged = score(episodes, f"{session_id}.1")
    assert judged.outcome == episode_service.REPLAY_OUTCOME_VERIFIED
    assert not judged.valid
    assert not judged.HasField("reward")
    assert not judged.HasField("success")

    after = raw.refusal(envs.Step, raw.step_request(session_id, 2, 7))
    assert (after.reason, after.metadata["reason"]) == ("EPISODE_OVER", "env_error")
    assert raw.where(envs, session_id).state == pb.SESSION_STATE_TRUNCATED
    assert raw.reset(envs, session_id).episode == 2
    assert raw.step(envs, session_id, 1, 7).reward == 7
    assert raw.step(envs, other, 1, letter("x")).observation.json


def test_a_tool_with_a_bug_is_no_fault_of_the_agent(envs, episodes):
    session_id = raw.playing(envs, "envs_for_tests:Notes")
    assert raw.step(envs, session_id, 1, ToolCall("write", '{"line": "one"}')).state_hash
    failure(envs.Step, raw.step_request(session_id, 2, ToolCall("burn")))
    *_, fault, end = events(episodes, f"{session_id}.1")
    assert fault.server_fault.error == "KeyError"
    assert end.episode_ended.reason == episode_pb2.END_REASON_ENV_ERROR
    assert not score(episodes, f"{session_id}.1").valid


def test_a_first_reset_that_fails_stands_in_the_log(envs, episodes):
    session_id = raw.create(envs, BROKEN)
    failure(envs.Reset, raw.reset_request(session_id, {"fail": 1}))
    (fault,) = events(episodes, f"{session_id}.1")
    assert fault.server_fault.error == "RuntimeError"
    judged = score(episodes, f"{session_id}.1")
    assert not judged.valid
    assert judged.detail == "the environment failed when it was reset"
    assert raw.where(envs, session_id).state == pb.SESSION_STATE_AWAITING_RESET
    assert raw.reset(envs, session_id, episode=1).episode == 1


def test_a_later_reset_that_fails_ends_the_episode_that_runs(envs, episodes):
    session_id = raw.playing(envs, BROKEN)
    failure(envs.Reset, raw.reset_request(session_id, {"fail": 1}))
    *_, end = events(episodes, f"{session_id}.1")
    assert end.episode_ended.reason == episode_pb2.END_REASON_ENV_ERROR
    assert raw.reset(envs, session_id, episode=2).episode == 2


def test_a_picture_that_fails_does_not_end_the_episode(envs):
    session_id = raw.playing(envs, BROKEN)
    failure(envs.Render, pb.RenderRequest(session_id=session_id))
    assert raw.step(envs, session_id, 1, 7).reward == 7


def test_an_environment_that_fails_to_close_is_closed(serve):
    server = serve(capacity=1)
    with grpc.insecure_channel(server.address) as channel:
        envs = EnvServiceStub(channel)
        for _ in range(3):
            session_id = raw.playing(envs, BROKEN)
            raw.close(envs, session_id)
            raw.close(envs, session_id)


def test_a_server_does_not_begin_with_an_environment_that_cannot_be_made(serve):
    registry = Registry()
    registry.add("envs_for_tests:Unmakeable")
    with pytest.raises(EnvError) as caught:
        serve(registry=registry)
    assert caught.value.metadata == {"env_id": "envs_for_tests:Unmakeable"}
    assert SECRET not in str(caught.value)


def test_sessions_of_failing_environments_expire_like_any_other(serve, monkeypatch):
    monkeypatch.setattr("env_server.service.server.REAP_SECONDS", 0.1)
    server = serve(lease_seconds=0.3)
    with grpc.insecure_channel(server.address) as channel:
        envs = EnvServiceStub(channel)
        for env_id in (BROKEN, TYPEWRITER, BROKEN):
            session_id = raw.playing(envs, env_id)
            time.sleep(1)
            refusal = raw.refusal(envs.GetSession, pb.GetSessionRequest(session_id=session_id))
            assert refusal.reason == "SESSION_EXPIRED"


def test_what_is_not_deterministic_can_neither_be_forked_nor_scored(envs, episodes):
    session_id = raw.playing(envs, "envs_for_tests:Chance")
    raw.step(envs, session_id, 1, 1)
    failure(envs.ForkSession, pb.ForkSessionRequest(session_id=session_id))
    raw.step(envs, session_id, 2, 1)
    raw.close(envs, session_id)
    judged = score(episodes, f"{session_id}.1")
    assert judged.outcome == episode_service.REPLAY_OUTCOME_DIVERGED
    assert (judged.step, judged.valid, judged.HasField("reward")) == (1, False, False)


# Slow ones


def test_a_step_whose_client_gave_up_is_taken_once(envs, episodes):
    session_id = raw.playing(envs, SLOW)
    before = raw.where(envs, session_id).state_hash
    request = raw.step_request(session_id, 1, 6)
    for _ in range(3):
        with pytest.raises(grpc.RpcError) as caught:
            envs.Step(request, timeout=0.1)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    reply = envs.Step(request, timeout=raw.SECONDS).transition
    assert reply.reward == 6
    assert reply.state_hash != before
    second = raw.step(envs, session_id, 2, 0)
    assert second.observation.value.integer == reply.observation.value.integer
    taken = [e.step_taken for e in events(episodes, f"{session_id}.1") if e.HasField("step_taken")]
    assert [event.step for event in taken] == [1, 2]
    assert score(episodes, f"{session_id}.1").outcome == episode_service.REPLAY_OUTCOME_VERIFIED


def test_a_reset_whose_client_gave_up_happens_once(envs, episodes):
    session_id = raw.playing(envs, SLOW, episode=1)
    slow = envs.Step.future(raw.step_request(session_id, 1, 9), timeout=raw.SECONDS)
    time.sleep(0.3)  # so that it is at work
    request = raw.reset_request(session_id, episode=2, seed=3)
    with pytest.raises(grpc.RpcError):
        envs.Reset(request, timeout=0.1)  # which waits for the step
    assert slow.result().transition.reward == 9
    assert envs.Reset(request, timeout=raw.SECONDS).episode == 2
    kinds = [event.WhichOneof("kind") for event in events(episodes, f"{session_id}.1")]
    assert kinds == ["episode_started", "step_taken", "episode_ended"]


def test_a_slow_step_holds_up_nobody(envs):
    slow = [raw.playing(envs, SLOW) for _ in range(16)]
    session_id = raw.playing(envs)
    with ThreadPoolExecutor(16) as pool:
        began = time.monotonic()
        calls = [pool.submit(raw.step, envs, one, 1, 9) for one in slow]
        time.sleep(0.2)
        assert raw.where(envs, slow[0]).step == 0
        assert raw.step(envs, session_id, 1, letter("x")).observation.json
        assert not any(call.done() for call in calls), "expected to be quicker than a slow step"
        assert {call.result().reward for call in calls} == {9}
    assert time.monotonic() - began < 16 * 0.9 / 2, "expected them at work together"


def test_slow_rows_are_at_work_together(envs):
    rows = [
        pb.RolloutAction(
            slot=slot, open=pb.RolloutOpen(session=pb.CreateSessionRequest(env_id=SLOW))
        )
        for slot in range(16)
    ]
    rows += [pb.RolloutAction(slot=slot, reset=pb.RolloutReset(seed=slot)) for slot in range(16)]
    step = pb.RolloutStep(action=raw.message(3))
    steps = [pb.RolloutAction(slot=n % 16, step=step) for n in range(32)]
    began = time.monotonic()
    requests = [pb.RolloutRequest(rows=rows), pb.RolloutRequest(rows=steps)]
    _, played = envs.Rollout(iter(requests), timeout=raw.SECONDS)
    assert time.monotonic() - began < 32 * 0.3 / 2, "expected the slots at work together"
    assert [row.slot for row in played.rows] == [row.slot for row in steps]
    assert [row.stepped.step for row in played.rows] == [1] * 16 + [2] * 16


def test_an_environment_stays_on_its_thread(serve, tmp_path):
    env_id, log_dir = "envs_for_tests:OneThread", tmp_path / "log"
    first = serve(log_dir=log_dir)
    with grpc.insecure_channel(first.address) as channel:
        envs = EnvServiceStub(channel)
        sessions = [raw.playing(envs, env_id) for _ in range(5)]
        for number in range(1, 6):
            with ThreadPoolExecutor(5) as pool:
                list(pool.map(partial(raw.step, envs, step=number, action=1), sessions))
    serve.stop(first)
    second = serve(log_dir=log_dir)
    with grpc.insecure_channel(second.address) as channel:
        envs = EnvServiceStub(channel)
        for session_id in sessions:
            assert raw.step(envs, session_id, 6, 1).reward == 1
            envs.Render(pb.RenderRequest(session_id=session_id), timeout=raw.SECONDS)
            assert raw.reset(envs, session_id).episode == 2


def test_calls_that_come_together_take_a_session_up_once(serve, tmp_path):
    first = serve(log_dir=tmp_path / "log")
    with grpc.insecure_channel(first.address) as channel:
        envs = EnvServiceStub(channel)
        session_id = raw.playing(envs, SLOW)
        raw.step(envs, session_id, 1, 3)
    serve.stop(first)
    second = serve(log_dir=tmp_path / "log")
    with grpc.insecure_channel(second.address) as channel:
        envs = EnvServiceStub(channel)
        request = raw.step_request(session_id, 2, 1)
        calls = [envs.Step.future(request, timeout=raw.SECONDS) for _ in range(20)]
        replies = [call.result().transition for call in calls]
    assert all(reply == replies[0] for reply in replies)
    assert raw.steps_in(second.log_dir) == {(f"{session_id}.1", 1): 1, (f"{session_id}.1", 2): 1}
