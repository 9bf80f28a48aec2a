"""Every mistake of a client has a status, a reason and the values that it needs to go on."""

import json
import re

import grpc
import pytest
import raw
from raw import DOG, TYPEWRITER, letter

from env_server import errors
from env_server.env import ToolCall
from env_server.service.status import CODES, reason
from env_server.tools import RESERVED
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2
from railgym.v1 import episode_service_pb2 as episode_service

LONG = "x" * 10_000


def subclasses(cls):
    return {cls, *(more for kind in cls.__subclasses__() for more in subclasses(kind))}


KINDS = sorted(
    subclasses(errors.RailgymError) - {errors.RailgymError}, key=lambda kind: kind.__name__
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_code_a_reason_and_a_place_in_the_tree(kind):
    declared = {name.removeprefix("ERROR_REASON_") for name in dict(pb.ErrorReason.items())}
    assert reason(kind("")) in declared - {"UNSPECIFIED"}
    assert re.search(rf"── {kind.__name__} +{CODES[kind].name}\n", errors.__doc__)


def test_there_is_an_error_for_every_reason():
    declared = {name.removeprefix("ERROR_REASON_") for name in dict(pb.ErrorReason.items())}
    assert {reason(kind("")) for kind in KINDS} == declared - {"UNSPECIFIED"}
    assert set(CODES) == set(KINDS)


# Ids that there are none of (S19)


@pytest.mark.parametrize(
    "env_id",
    [
        "typewritter/Typewriter-v0",
        "railgym/Typewriter-v9",
        "nowhere/X-v1",
        "\u00e9\U0001f600",
        LONG,
    ],
)
def test_an_unknown_environment_names_the_nearest(envs, env_id):
    for rpc, request in [
        (envs.CreateSession, pb.CreateSessionRequest(env_id=env_id)),
        (envs.ListTasks, pb.ListTasksRequest(env_id=env_id)),
    ]:
        code, why, metadata, text = raw.refusal(rpc, request)
        assert (code, why) == ("NOT_FOUND", "UNKNOWN_ENV")
        assert metadata["env_id"] == env_id[:200]
        assert metadata["nearest"]
        assert len(text) < 1_000
    if "ypewriter" in env_id:
        assert TYPEWRITER in metadata["nearest"].split(",")


@pytest.mark.parametrize("task_id", ["typewriter/reference/dogs", "nothing", LONG])
def test_an_unknown_task_names_the_nearest(envs, task_id):
    request = pb.CreateSessionRequest(task_id=task_id)
    code, why, metadata, _ = raw.refusal(envs.CreateSession, request)
    assert (code, why) == ("NOT_FOUND", "UNKNOWN_TASK")
    assert metadata["task_id"] == task_id[:200]
    assert metadata["nearest"]
    if task_id.endswith("dogs"):
        assert DOG in metadata["nearest"].split(",")


@pytest.mark.parametrize("session_id", ["", "0" * 32, "../../etc/passwd", LONG])
def test_an_unknown_session_is_not_found(envs, session_id):
    for rpc, request in [
        (envs.GetSession, pb.GetSessionRequest(session_id=session_id)),
        (envs.Step, raw.step_request(session_id, 1, letter("d"))),
        (envs.Reset, raw.reset_request(session_id)),
        (envs.CloseSession, pb.CloseSessionRequest(session_id=session_id)),
    ]:
        refusal = raw.refusal(rpc, request)
        assert refusal[:3] == ("NOT_FOUND", "UNKNOWN_SESSION", {"session_id": session_id[:80]})


@pytest.mark.parametrize("episode_id", ["", "0" * 32 + ".1", LONG])
def test_an_unknown_episode_is_not_found(episodes, episode_id):
    for rpc, request in [
        (episodes.ReadEpisode, episode_service.ReadEpisodeRequest(episode_id=episode_id)),
        (episodes.ScoreEpisodes, episode_service.ScoreEpisodesRequest(episode_ids=[episode_id])),
    ]:
        refusal = raw.refusal(rpc, request)
        assert refusal[:3] == ("NOT_FOUND", "UNKNOWN_EPISODE", {"episode_id": episode_id[:80]})


def test_no_event_of_a_session_is_read_without_an_episode(episodes):
    reply = episodes.ReadEpisode(episode_service.ReadEpisodeRequest(), timeout=raw.SECONDS)
    with pytest.raises(grpc.RpcError):
        raise AssertionError(f"got {next(iter(reply))}")


# Options (S20)


@pytest.mark.parametrize(
    ("options_json", "option"),
    [
        ('{"nonsense": 1}', "nonsense"),
        ('{"target": 5}', "target"),
        ('{"target": ""}', "target"),
        ('{"finish": "never"}', "finish"),
        ("{", ""),
        ("[]", ""),
        ('"target"', ""),
        ("null", ""),
        ('{"target": "a", "target": "b"}', ""),
        ('{"target": NaN}', ""),
        ("[" * 100_000, ""),
        ("1" * 5_000, ""),
        ('{"\\ud800": 1}', "options"),
    ],
)
def test_bad_options_are_named(envs, options_json, option):
    session_id = raw.create(envs)
    request = pb.ResetRequest(session_id=session_id, options_json=options_json)
    code, why, metadata, _ = raw.refusal(envs.Reset, request)
    assert (code, why) == ("INVALID_ARGUMENT", "BAD_OPTIONS")
    assert metadata["option"] == option
    assert metadata["expected"]
    assert metadata["got"]
    assert raw.where(envs, session_id).state == pb.SESSION_STATE_AWAITING_RESET


def test_good_options_stand_in_the_log(envs, episodes):
    session_id = raw.playing(envs, options={"target": "dog"})
    request = episode_service.ReadEpisodeRequest(episode_id=f"{session_id}.1")
    first, *_ = episodes.ReadEpisode(request)
    assert json.loads(first.event.episode_started.options_json) == {"target": "dog"}


@pytest.mark.parametrize(
    ("env_id", "bad"),
    [
        (TYPEWRITER, {"target": 5}),
        ("railgym/TypewriterKeys-v1", {"finish": "never"}),
        ("railgym/TypewriterPolicy-v1", {"target": "UPPER"}),
        ("railgym/Relational-v1", {"world": -1}),
        ("railgym/MultiverseMath-v1", {"universe": "ours"}),
    ],
)
def test_a_reset_that_is_refused_leaves_the_running_episode_alone(envs, env_id, bad):
    session_id = raw.playing(envs, env_id)
    before = raw.where(envs, session_id)
    assert (
        raw.refusal(envs.Reset, raw.reset_request(session_id, bad, seed=99)).reason == "BAD_OPTIONS"
    )
    after = raw.where(envs, session_id)
    assert (after.state, after.episode, after.step) == (before.state, 1, 0)
    assert after.state_hash == before.state_hash
    other = raw.playing(envs, env_id)
    for one in (session_id, other):
        raw.reset(envs, one)
    frames = [
        envs.Render(pb.RenderRequest(session_id=one), timeout=raw.SECONDS).frame
        for one in (session_id, other)
    ]
    assert frames[0] == frames[1]


# Requests that make no sense


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "env_id"),
        ({"env_id": "railgym/Relational-v1", "task_id": DOG}, "env_id"),
        ({"env_id": TYPEWRITER, "labels": {str(n): "" for n in range(33)}}, "labels"),
        ({"env_id": TYPEWRITER, "labels": {"agent": "\u00e9" * 129}}, "labels"),
        ({"env_id": TYPEWRITER, "labels": {"x" * 257: ""}}, "labels"),
        ({"env_id": TYPEWRITER, "argument_rule": 99}, "argument_rule"),
        ({"env_id": TYPEWRITER, "request_id": "x" * 257}, "request_id"),
    ],
)
def test_a_creation_that_makes_no_sense(envs, fields, field):
    refusal = raw.refusal(envs.CreateSession, pb.CreateSessionRequest(**fields))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "BAD_REQUEST")
    assert set(refusal.metadata) == {"field", "expected", "got"}
    assert refusal.metadata["field"] == field


@pytest.mark.parametrize("reason", [episode_pb2.END_REASON_GOAL, episode_pb2.END_REASON_FINAL, 99])
def test_a_reason_for_the_end_that_no_client_may_give(envs, reason):
    session_id = raw.playing(envs)
    request = pb.CloseSessionRequest(session_id=session_id, reason=reason)
    assert raw.refusal(envs.CloseSession, request).metadata["field"] == "reason"
    assert raw.where(envs, session_id).state == pb.SESSION_STATE_RUNNING


@pytest.mark.parametrize("claim", ["", "{", "[]", "1", json.dumps({"text": "x" * 70_000})])
def test_a_claim_that_is_no_object(envs, claim):
    session_id = raw.playing(envs)
    request = pb.RecordClaimRequest(session_id=session_id, claim_json=claim)
    refusal = raw.refusal(envs.RecordClaim, request)
    assert (refusal.reason, refusal.metadata["field"]) == ("BAD_REQUEST", "claim_json")


@pytest.mark.parametrize("token", ["nonsense", "-1", "0", "00", "99999", "1" * 5_000, "\u0661"])
def test_a_page_token_of_no_list(envs, episodes, token):
    for rpc, request in [
        (envs.ListEnvs, pb.ListEnvsRequest(page_token=token)),
        (envs.ListTasks, pb.ListTasksRequest(page_token=token)),
        (episodes.ListEpisodes, episode_service.ListEpisodesRequest(page_token=token)),
    ]:
        refusal = raw.refusal(rpc, request)
        assert refusal[:3] == ("INVALID_ARGUMENT", "BAD_PAGE", {"page_token": token[:80]})


def test_pages_hold_everything_once(envs, registry):
    seen, token = [], ""
    while True:
        page = envs.ListTasks(pb.ListTasksRequest(page_size=50, page_token=token))
        assert len(page.tasks) <= 50
        seen += [task.task_id for task in page.tasks]
        token = page.next_page_token
        if not token:
            break
    assert seen == list(registry.tasks)
    assert len(envs.ListTasks(pb.ListTasksRequest(page_size=2**31 - 1)).tasks) == len(seen)
    assert len(envs.ListTasks(pb.ListTasksRequest()).tasks) == 100


def test_a_negative_page_and_an_unknown_level(envs):
    for rpc, request, field in [
        (envs.ListEnvs, pb.ListEnvsRequest(page_size=-1), "page_size"),
        (envs.ListTasks, pb.ListTasksRequest(level="L4"), "level"),
    ]:
        refusal = raw.refusal(rpc, request)
        assert (refusal.reason, refusal.metadata["field"]) == ("BAD_REQUEST", field)


def test_a_fork_of_a_step_that_was_not_taken(envs):
    session_id = raw.playing(envs)
    request = pb.ForkSessionRequest(session_id=session_id, step=1)
    refusal = raw.refusal(envs.ForkSession, request)
    assert refusal[:2] == ("INVALID_ARGUMENT", "BAD_REQUEST")
    assert refusal.metadata == {"field": "step", "expected": "at most 0", "got": "1"}


# What an agent must not have (S17)


def test_no_reply_gives_a_task_away(envs, registry):
    secret = {"expected", "validators", "gold", "required_fields", "options"}
    assert not secret & set(episode_pb2.TaskInfo.DESCRIPTOR.fields_by_name)
    for info in envs.ListTasks(pb.ListTasksRequest(page_size=1_000)).tasks:
        assert not any(":" in tag for tag in info.tags), "expected no notes for the scorer"
        expected = registry.task(info.task_id).expected or ""
        assert not expected.startswith("SELECT") or expected not in info.instruction


@pytest.mark.parametrize("name", [*sorted(RESERVED), "list_sessions", "__init__", "type_letter "])
def test_nothing_but_tools_can_be_called(envs, name):
    session_id = raw.playing(envs)
    before = raw.where(envs, session_id).state_hash
    reply = raw.step(envs, session_id, 1, ToolCall(name, '{"letter": "x"}'))
    assert reply.info["fault"].text == "unknown_tool"
    assert (reply.terminated, reply.state_hash) == (False, before)
