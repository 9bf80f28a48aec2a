"""The thin client against real servers: what it says, and what it survives."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import railgym
from railgym import connection, errors, records
from railgym.v1 import env_service_pb2, episode_pb2

DOG = "typewriter/reference/dog"


@pytest.fixture
def client(server):
    with railgym.connect(server.address) as client:
        yield client


@pytest.fixture
def session(client):
    with client.session("railgym/Typewriter-v1") as session:
        session.reset(seed=1, options={"target": "dog", "finish": "final"})
        yield session


def test_every_reason_has_a_class_in_the_tree():
    declared = {
        name.removeprefix("ERROR_REASON_") for name, _ in env_service_pb2.ErrorReason.items()
    }
    assert {*errors.REASONS, "UNSPECIFIED"} == declared
    for kind in errors.REASONS.values():
        assert f"── {kind.__name__} " in errors.__doc__
        assert kind.__name__ in railgym.__all__


def test_health(client):
    assert client.health() == "SERVING"


def test_envs_say_what_they_are(client, registry):
    envs = {env.env_id: env for env in client.envs()}
    assert set(envs) == set(registry.envs)
    typewriter = envs["railgym/Typewriter-v1"]
    assert [tool.name for tool in typewriter.tools] == ["type_letter"]
    assert "target" in typewriter.options_schema["properties"]
    assert envs["CartPole-v1"].tools == ()
    assert envs["CartPole-v1"].options_schema is None


def test_lists_are_read_to_their_end(client, registry, monkeypatch):
    monkeypatch.setattr("railgym.client.PAGE_SIZE", 7)
    assert [task.task_id for task in client.tasks()] == list(registry.tasks)
    assert len(client.envs()) == len(registry.envs)


def test_tasks_are_chosen_by_environment_and_level(client, registry):
    chosen = client.tasks("railgym/Typewriter-v1", "L2")
    assert {(task.env_id, task.level) for task in chosen} == {("railgym/Typewriter-v1", "L2")}
    expected = registry.tasks[DOG]
    task = next(task for task in client.tasks() if task.task_id == DOG)
    assert task.instruction == expected.instruction
    assert task.sha256 == expected.sha256
    with pytest.raises(railgym.UnknownEnv):
        client.tasks("nonsense")


def test_an_episode_is_played_to_its_end(client):
    with client.session(task_id=DOG, labels={"agent": "test"}) as session:
        assert session.task.task_id == DOG
        assert (session.episode, session.steps, session.end_reason) == (0, 0, None)
        observation, info = session.reset()
        assert (observation, info) == ('{"result":""}', {})
        for letter in "dog":
            session.call("type_letter", letter=letter)
        before = session.state_hash
        assert len(before) == 32
        last = session.final("dog")
    assert last == railgym.Transition('{"result":null}', 1.0, True, False, {})
    assert (session.episode, session.steps, session.end_reason) == (1, 4, "final")
    episode = next(e for e in client.episodes() if e.episode_id == f"{session.id}.1")
    assert (episode.task_id, episode.steps, episode.end_reason) == (DOG, 4, "final")
    assert episode.labels == {"agent": "test"}
    score = next(client.score([episode.episode_id]))
    assert (score.outcome, score.valid, score.success, score.reward) == ("VERIFIED", True, True, 1)


def test_every_kind_of_action_travels(session):
    assert session.call_json("type_letter", '{"letter": "d"').info == {"fault": "format_error"}
    assert session.text('{"action": "type_letter", "action_input": {"letter": "o"}}').info == {}
    assert session.no_action("empty_response").info == {"fault": "empty_response"}
    assert session.call("type_letter\ud800", name="x").info == {"fault": "unknown_tool"}
    assert session.call_json("type_letter", '{"letter": "\ud800"}', turn=3).info == {}
    assert session.render().startswith("paper : o")
    assert session.no_action("refusal", "I will not").terminated
    assert session.end_reason == "final"


def test_a_session_goes_on_in_another_client(server, session):
    session.call("type_letter", letter="d")
    with railgym.connect(server.address) as other:
        again = other.resume(session.id)
        assert (again.episode, again.steps) == (1, 1)
        assert again.state_hash == session.state_hash
        assert again.env == session.env
        assert again.call("type_letter", letter="o").observation == '{"result":"do"}'
    with pytest.raises(railgym.StepOutOfOrder) as caught:
        session.call("type_letter", letter="x")
    assert (caught.value.code, caught.value.reason) == ("FAILED_PRECONDITION", "STEP_OUT_OF_ORDER")
    assert caught.value.metadata == {"expected": "3", "got": "2"}


def test_a_resumed_session_offers_the_tools_of_its_task(client):
    env = next(env for env in client.envs() if env.env_id == "railgym/TypewriterKeys-v1")
    task = client.tasks(env.env_id)[0]
    limited = records.limited_to(env, task._replace(allowed_tools=("d", "o", "g")))
    assert [tool.name for tool in limited.tools] == ["d", "g", "o"]
    assert records.limited_to(env, task._replace(allowed_tools=())) == env
    assert records.limited_to(env, None) == env


def test_the_same_step_may_be_sent_again(session):
    first = session.call("type_letter", letter="d")
    session.steps -= 1
    assert session.call("type_letter", letter="d") == first
    session.episode -= 1
    with pytest.raises(railgym.EpisodeOutOfOrder):
        session.reset(seed=2)


def test_a_fork_lives_on_its_own(session):
    session.call("type_letter", letter="d")
    session.call("type_letter", letter="o")
    now, before = session.fork(labels={"trial": "2"}), session.fork(step=1)
    assert (now.steps, now.state_hash) == (2, session.state_hash)
    assert (before.steps, before.episode) == (1, 1)
    session.close()
    assert now.call("type_letter", letter="g").observation == '{"result":"dog"}'
    assert before.call("type_letter", letter="x").observation == '{"result":"dx"}'
    with pytest.raises(railgym.BadRequest):
        before.fork(step=9)
    assert before.reset(seed=4)[0] == '{"result":""}'
    now.close()
    before.close()


def test_a_claim_stands_in_the_log(client, session):
    session.claim({"model": "none", "usage": {"output_tokens": 3}})
    events = [event for event in client.read_episode(f"{session.id}.1") if event.agent_claim]
    claims = [e.agent_claim.claim_json for e in events if e.HasField("agent_claim")]
    assert claims == ['{"model": "none", "usage": {"output_tokens": 3}}']


@pytest.mark.parametrize(
    ("reason", "logged"),
    [
        (None, episode_pb2.END_REASON_CLIENT_CLOSED),
        ("time_limit", episode_pb2.END_REASON_TIME_LIMIT),
        ("api_error", episode_pb2.END_REASON_API_ERROR),
    ],
)
def test_the_reason_of_a_close_stands_in_the_log(client, session, reason, logged):
    session.close(reason)
    session.close()
    *_, last = client.read_episode(f"{session.id}.1")
    assert last.episode_ended.reason == logged
    with pytest.raises(railgym.SessionClosed) as caught:
        session.final()
    assert caught.value.metadata["session_id"] == session.id


def test_a_reason_that_a_client_may_not_give_is_refused(session):
    with pytest.raises(railgym.BadRequest):
        session.close("goal")
    with pytest.raises(ValueError, match=r"expected one of final, .*; got 'nonsense'"):
        session.close("nonsense")


def test_lenient_arguments_are_asked_for(client):
    with pytest.raises(ValueError, match="expected the rule 'strict' or 'lenient', got 'loose'"):
        client.session("railgym/MultiverseMath-v1", arguments="loose")
    for rule, info in [
        ("strict", {"fault": "bad_arguments"}),
        ("lenient", {"repaired": "lenient_arguments"}),
    ]:
        with client.session("railgym/MultiverseMath-v1", arguments=rule) as session:
            session.reset(seed=1)
            assert session.call("add", a="1", b=2).info == info


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_bounds_is_refused(session, seed):
    with pytest.raises(ValueError, match="expected a seed from 0 to"):
        session.reset(seed=seed)


def test_wrong_ids_options_and_actions_are_errors_of_their_own(client, session):
    with pytest.raises(railgym.UnknownTask) as caught:
        client.session(task_id="typewriter/reference/dig")
    assert DOG in caught.value.metadata["nearest"].split(",")
    with pytest.raises(railgym.BadRequest):
        client.session()
    with pytest.raises(railgym.BadOptions, match="colour"):
        session.reset(options={"colour": "red"})
    with pytest.raises(railgym.UnknownSession):
        client.resume("nonsense")
    with pytest.raises(railgym.UnknownEpisode):
        next(client.read_episode("nonsense"))
    with pytest.raises(railgym.UnknownEpisode):
        next(client.score(["nonsense"]))
    with pytest.raises(TypeError, match="expected a ToolCall, Text, Final or NoAction, got int"):
        session.step(3)
    with client.session("CartPole-v1") as plain:
        with pytest.raises(railgym.NotReset):
            plain.step(0)
        plain.reset()
        with pytest.raises(railgym.BadAction):
            plain.final("3")
        with pytest.raises(railgym.BadAction, match="Discrete"):
            plain.step(2)


def test_a_status_without_a_reason_keeps_its_code(server):
    link = connection.Connection(server.address)
    rpc = link.channel.unary_unary("/railgym.v1.EnvService/Nonsense")
    with pytest.raises(railgym.RailgymError) as caught:
        link.ask(rpc, b"")
    assert type(caught.value) is railgym.RailgymError
    assert (caught.value.code, caught.value.reason) == ("UNIMPLEMENTED", "")
    link.close()
    link.close()


def test_threads_share_a_client(client):
    def play(seed):
        with client.session("railgym/Typewriter-v1") as session:
            session.reset(seed=seed, options={"target": "dog", "finish": "final"})
            return [session.call("type_letter", letter=letter).observation for letter in "dog"]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(play, range(32)))
    assert results == [['{"result":"d"}', '{"result":"do"}', '{"result":"dog"}']] * 32
