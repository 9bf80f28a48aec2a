"""Calls in a wrong order are refused, and calls that come twice are done once."""

import re

import pytest
import raw
from raw import DOG, TYPEWRITER, letter

from env_server.env import Final, NoAction, Text
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2
from railgym.v1 import episode_service_pb2 as episode_service

# In the wrong order (S22)


def test_a_step_before_the_first_reset(envs):
    session_id = raw.create(envs)
    for rpc, request in [
        (envs.Step, raw.step_request(session_id, 1, letter("d"))),
        (envs.Render, pb.RenderRequest(session_id=session_id)),
        (envs.ForkSession, pb.ForkSessionRequest(session_id=session_id)),
        (envs.RecordClaim, pb.RecordClaimRequest(session_id=session_id, claim_json="{}")),
    ]:
        code, why, metadata, _ = raw.refusal(rpc, request)
        assert (code, why) == ("FAILED_PRECONDITION", "NOT_RESET")
        assert metadata == {"session_id": session_id, "state": "AWAITING_RESET"}
    assert raw.where(envs, session_id).state == pb.SESSION_STATE_AWAITING_RESET


def test_a_step_after_the_end(envs):
    session_id = raw.playing(envs, options={"target": "d"})
    raw.step(envs, session_id, 1, letter("d"))
    refusal = raw.refusal(envs.Step, raw.step_request(session_id, 2, letter("o")))
    assert refusal[:3] == ("FAILED_PRECONDITION", "EPISODE_OVER", {"step": "1", "reason": "goal"})
    assert raw.where(envs, session_id).state == pb.SESSION_STATE_TERMINATED
    assert raw.reset(envs, session_id).episode == 2
    assert raw.where(envs, session_id).state == pb.SESSION_STATE_RUNNING


def test_the_limit_of_steps_truncates(envs, registry):
    session_id = raw.create(envs, "", task_id=DOG)
    raw.reset(envs, session_id)
    limit = registry.task(DOG).max_steps
    flags = [raw.step(envs, session_id, n, Text("prose")).truncated for n in range(1, limit + 1)]
    assert flags == [False] * (limit - 1) + [True]
    assert raw.where(envs, session_id).state == pb.SESSION_STATE_TRUNCATED
    refusal = raw.refusal(envs.Step, raw.step_request(session_id, limit + 1, Final("")))
    assert refusal[:3] == (
        "FAILED_PRECONDITION",
        "EPISODE_OVER",
        {"step": str(limit), "reason": "max_steps"},
    )


def test_after_the_close_nothing_works_but_to_close_again(envs):
    session_id = raw.playing(envs)
    raw.close(envs, session_id)
    raw.close(envs, session_id)
    for rpc, request in [
        (envs.Step, raw.step_request(session_id, 1, letter("d"))),
        (envs.Reset, raw.reset_request(session_id)),
        (envs.GetSession, pb.GetSessionRequest(session_id=session_id)),
        (envs.ForkSession, pb.ForkSessionRequest(session_id=session_id)),
    ]:
        code, why, metadata, _ = raw.refusal(rpc, request)
        assert (code, why) == ("FAILED_PRECONDITION", "SESSION_CLOSED")
        assert metadata["session_id"] == session_id
        assert metadata["reason"] == "client_closed"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", metadata["ended_at"])


def test_a_reset_ends_the_episode_that_runs(envs, episodes):
    session_id = raw.playing(envs)
    assert raw.reset(envs, session_id).episode == 2
    request = episode_service.ReadEpisodeRequest(episode_id=f"{session_id}.1")
    *_, last = episodes.ReadEpisode(request)
    assert last.event.episode_ended.reason == episode_pb2.END_REASON_CLIENT_CLOSED
    refusal = raw.refusal(envs.Step, raw.step_request(session_id, 1, letter("d"), episode=1))
    assert refusal[:3] == (
        "FAILED_PRECONDITION",
        "EPISODE_OUT_OF_ORDER",
        {"expected": "2", "got": "1"},
    )


# Exactly once (S8)


def test_a_lost_reply_is_sent_again_and_the_step_is_taken_once(envs, episodes):
    session_id = raw.playing(envs, options={"target": "doggy"})
    first = raw.step(envs, session_id, 1, letter("d"))
    for _ in range(3):
        assert raw.step(envs, session_id, 1, letter("d")) == first
    assert raw.step(envs, session_id, 2, letter("o")).observation.json == '{"result":"do"}'
    request = episode_service.ReadEpisodeRequest(episode_id=f"{session_id}.1")
    events = [reply.event for reply in episodes.ReadEpisode(request)]
    assert [e.step_taken.step for e in events if e.HasField("step_taken")] == [1, 2]


@pytest.mark.parametrize(
    ("number", "action", "expected"),
    [(3, "x", 2), (9, "x", 2), (0, "x", 2), (1, "x", 2), (2**32 - 1, "x", 2)],
)
def test_a_step_out_of_order_is_refused(envs, number, action, expected):
    session_id = raw.playing(envs, options={"target": "doggy"})
    raw.step(envs, session_id, 1, letter("d"))
    refusal = raw.refusal(envs.Step, raw.step_request(session_id, number, letter(action)))
    assert refusal[:3] == (
        "FAILED_PRECONDITION",
        "STEP_OUT_OF_ORDER",
        {"expected": str(expected), "got": str(number)},
    )
    assert raw.where(envs, session_id).step == 1


def test_the_last_step_may_be_sent_again_after_the_end(envs):
    session_id = raw.playing(envs, options={"target": "d"})
    last = raw.step(envs, session_id, 1, letter("d"))
    assert last.terminated
    assert raw.step(envs, session_id, 1, letter("d")) == last
    refusal = raw.refusal(envs.Step, raw.step_request(session_id, 1, letter("x")))
    assert refusal.reason == "STEP_OUT_OF_ORDER"


def test_a_reset_with_its_number_may_be_sent_again(envs):
    session_id = raw.create(envs)
    first = raw.reset(envs, session_id, episode=1)
    assert raw.reset(envs, session_id, episode=1) == first
    assert raw.reset(envs, session_id, episode=1, seed=first.seed) == first
    second = raw.reset(envs, session_id, episode=2, options={"target": "dog"})
    assert raw.reset(envs, session_id, episode=2, options={"target": "dog"}) == second
    assert second.episode_id == f"{session_id}.2"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"episode": 3}, "2"),
        ({"episode": 1, "seed": 2}, "2"),
        ({"episode": 1, "options": {"target": "dog"}}, "2"),
    ],
)
def test_another_reset_than_the_next_one_is_refused(envs, fields, expected):
    session_id = raw.playing(envs, seed=1)
    refusal = raw.refusal(envs.Reset, raw.reset_request(session_id, **fields))
    assert refusal[:2] == ("FAILED_PRECONDITION", "EPISODE_OUT_OF_ORDER")
    assert refusal.metadata == {"expected": expected, "got": str(fields["episode"])}


def test_a_reset_is_not_repeated_once_a_step_was_taken(envs):
    session_id = raw.playing(envs, seed=1, episode=1)
    raw.step(envs, session_id, 1, NoAction("empty_response"))
    refusal = raw.refusal(envs.Reset, raw.reset_request(session_id, episode=1, seed=1))
    assert refusal.reason == "EPISODE_OUT_OF_ORDER"


def test_a_creation_may_be_sent_again(envs):
    first = raw.create(envs, request_id="creation", labels={"agent": "a"})
    assert raw.create(envs, request_id="creation", labels={"agent": "a"}) == first
    assert raw.create(envs) != raw.create(envs)
    for fields in [{"labels": {"agent": "b"}}, {"env_id": "railgym/TypewriterKeys-v1"}]:
        asked = {"env_id": TYPEWRITER, "labels": {"agent": "a"}, **fields}
        request = pb.CreateSessionRequest(request_id="creation", **asked)
        code, why, metadata, _ = raw.refusal(envs.CreateSession, request)
        assert (code, why) == ("INVALID_ARGUMENT", "BAD_REQUEST")
        assert metadata == {"field": "request_id", "expected": "a new one", "got": "creation"}
    raw.close(envs, first)
    request = pb.CreateSessionRequest(
        env_id=TYPEWRITER, request_id="creation", labels={"agent": "a"}
    )
    assert raw.refusal(envs.CreateSession, request).reason == "BAD_REQUEST"
