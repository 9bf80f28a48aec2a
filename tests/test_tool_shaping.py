"""Shaped tools: distractors and names that mean nothing, as a part of the episode's value."""

import json
import re

import pytest
import raw
from gymnasium.envs.registration import EnvSpec
from typer.testing import CliRunner

import railgym
from env_server import codec
from env_server.cli.app import app
from env_server.distractors import DISTRACTORS
from env_server.env import Final, Text, ToolCall
from env_server.episode import Episode, EpisodeSpec
from env_server.gold import play_gold
from env_server.log import episodes
from env_server.registry import Registry
from env_server.scoring import metrics, replay
from env_server.scoring.faults import Capability, first_fault
from env_server.scoring.replayed import GoldBook, Replayed
from env_server.scoring.score import score_log
from env_server.scoring.summary import summarise
from env_server.shaping import Toolbox, toolbox, tools_for, tools_sha256
from railgym import ToolShaping
from railgym.spaces import AS_THEY_ARE, MAX_DISTRACTORS
from railgym.v1 import env_service_pb2 as pb

REGISTRY = Registry()
TOOL_IDS = sorted(env_id for env_id, entry in REGISTRY.envs.items() if not entry.is_plain)
MATH = "railgym/MultiverseMath-v1"
ORDERS = "railgym/Orders-v1"
NOTES = "envs_for_tests:Notes"
BOTH = ToolShaping(6, renamed=True, seed=3)
SHAPINGS = [ToolShaping(5), ToolShaping(0, renamed=True), BOTH, ToolShaping(24, True, 2**64 - 1)]


def tools_of(env_id):
    return REGISTRY.env(env_id).tools


def box_of(env_id, shaping):
    return toolbox(REGISTRY.env(env_id).env_class, shaping)


def task_of(env_id, level="L2"):
    tasks = REGISTRY.tasks.values()
    return next(task for task in tasks if (task.env_id, task.level) == (env_id, level))


def shaped_gold(task, shaping, registry=REGISTRY):
    """The gold solution, with the names that are shown."""
    box = toolbox(registry.env(task.env_id).env_class, shaping)
    return [
        action._replace(name=box.shown(action.name)) if isinstance(action, ToolCall) else action
        for action in play_gold(task, registry)[0].actions
    ]


def begin(task, shaping):
    spec = EpisodeSpec(task.env_id, task, task.options, shaping=shaping)
    return Episode(spec, REGISTRY.env(task.env_id).make())


def take(episode, actions):
    return [episode.step(episode.latest + 1, action) for action in actions]


# What is shown


@pytest.mark.parametrize("env_id", TOOL_IDS)
@pytest.mark.parametrize("shaping", SHAPINGS, ids=str)
def test_what_is_shown_follows_from_the_shaping(env_id, shaping):
    own = tools_of(env_id)
    box = Toolbox(own, shaping)
    assert len(box.tools) == len(own) + shaping.distractors
    specs = [tool.spec for tool in box.tools.values()]
    assert specs == [tool.spec for tool in Toolbox(own, shaping).tools.values()]
    assert [spec.name for spec in specs] == [*box.tools]
    assert sum(map(box.is_distractor, box.tools)) == shaping.distractors
    assert {box.origin(name) for name in box.tools} >= set(own)
    assert all(box.shown(box.origin(name)) == name for name in box.tools)
    for name, tool in box.tools.items():
        if not box.is_distractor(name):
            assert tool.method is own[box.origin(name)].method
            assert [*tool.spec.parameters["properties"]] == [
                *own[box.origin(name)].spec.parameters["properties"]
            ]


@pytest.mark.parametrize("env_id", TOOL_IDS)
def test_shown_names_mean_nothing_and_stand_wherever_the_tools_are_named(env_id):
    box = box_of(env_id, BOTH)
    assert all(re.fullmatch(r"tool_\d\d", name) for name in box.tools)
    names = [name for name in tools_of(env_id) if "_" in name]
    for tool in box.tools.values():
        text = json.dumps(tool.spec)
        assert not [name for name in names if name in text]


def test_another_seed_shows_something_else():
    boxes = [box_of(ORDERS, BOTH._replace(seed=seed)) for seed in range(5)]
    assert len({tuple(map(box.origin, sorted(box.tools))) for box in boxes}) == 5
    assert len({frozenset(filter(box.is_distractor, box.tools)) for box in boxes}) == 5
    assert len({tools_sha256(REGISTRY.env(ORDERS).env_class, (), s) for s in SHAPINGS}) == 4


def test_there_are_as_many_distractors_as_may_be_asked_for():
    assert len({tool.name for tool in DISTRACTORS}) == len(DISTRACTORS) == MAX_DISTRACTORS
    bundled = {name for env_id in TOOL_IDS for name in tools_of(env_id)}
    assert not bundled & {tool.name for tool in DISTRACTORS}


def test_a_tool_of_the_environment_is_no_distractor_whatever_its_name():
    own = {tool.name: tool for tool in DISTRACTORS[:2]}
    box = Toolbox(own, ToolShaping(24))
    assert len(box.tools) == 24
    assert not any(map(box.is_distractor, own))


def test_a_task_allows_tools_by_their_own_names():
    cls = REGISTRY.env(ORDERS).env_class
    shown = tools_for(cls, ("get_order",), BOTH)
    box = toolbox(cls, BOTH)
    origins = [box.origin(spec.name) for spec in shown]
    assert origins.count("get_order") == 1
    assert len(shown) == 1 + BOTH.distractors


# What is played


@pytest.mark.parametrize("env_id", TOOL_IDS)
@pytest.mark.parametrize("shaping", SHAPINGS, ids=str)
def test_gold_under_shown_names_is_gold(env_id, shaping):
    task = task_of(env_id)
    plain, replies = play_gold(task, REGISTRY)
    episode = begin(task, shaping)
    assert [tool.name for tool in episode.tools] != [*tools_of(env_id)]
    assert take(episode, shaped_gold(task, shaping)) == replies
    assert episode.calls == plain.calls
    run = Replayed(episode, replies, GoldBook(REGISTRY).find(episode))
    assert (run.success, metrics.trajectory(run), metrics.step_ratio(run)) == (True, 1, 1)


def test_a_distractor_answers_with_a_tool_error_and_changes_nothing():
    task = task_of(ORDERS)
    for shaping in (ToolShaping(24), ToolShaping(24, renamed=True)):
        box = box_of(ORDERS, shaping)
        for name in filter(box.is_distractor, box.tools):
            episode = begin(task, shaping)
            space = railgym.ToolSpace([box.tools[name].spec], seed=1)
            [reply] = take(episode, [space.sample()])
            assert reply.transition.info == {"fault": "tool_error"}
            assert reply.state_hash == episode.start.state_hash
            assert episode.calls[0].name == box.origin(name)
            rest = take(episode, shaped_gold(task, shaping))
            assert rest[-1].transition.reward == 1, "expected a mistake that can be mended"
            assert first_fault(Replayed(episode, [reply, *rest], None)) is Capability.SELECTION


def test_names_that_are_not_shown_do_not_exist():
    limited = task_of(ORDERS).model_copy(update={"allowed_tools": ["get_order", "find_customers"]})
    box = box_of(ORDERS, BOTH)
    episode = begin(limited, BOTH)
    names = ["get_order", box.shown("cancel_order"), "tool_99", box.shown("get_order")]
    replies = take(episode, [ToolCall(name, '{"order_id":1000}') for name in names])
    codes = [reply.transition.info["fault"] for reply in replies]
    assert codes == ["unknown_tool", "not_allowed", "unknown_tool", "tool_error"]
    assert "get_order" not in replies[0].transition.observation.replace("'get_order'", "")


def test_what_goes_wrong_is_told_with_shown_names():
    task = task_of("railgym/Relational-v1")
    episode = begin(task, BOTH)
    shown = box_of(task.env_id, BOTH).shown
    calls = [
        ToolCall(shown("get_user_name"), '{"user_id":-1}'),
        ToolCall(shown("get_user_name"), "{}"),
        Text(f'{{"action":"{shown("get_user_name")}","action_input":{{"user_id":1,"user":1}}}}'),
    ]
    messages = [
        json.loads(reply.transition.observation)["error"]["message"]
        for reply in take(episode, calls)
    ]
    assert messages[0].endswith(f"{shown('find_users_by_name')} finds ids")
    assert messages[1] == f"{shown('get_user_name')} needs the argument 'user_id'"
    assert messages[2].startswith(f"{shown('get_user_name')} has no argument 'user'")


IMPOSSIBLE = [
    ("multiply", {"a": 1e308, "b": 1e308}),
    ("add", {"a": 1e308, "b": 1e308}),
    ("subtract", {"a": 1e308, "b": -1e308}),
    ("divide", {"a": 1, "b": 0}),
    ("divide", {"a": 1e308, "b": 1e-308}),
    ("power", {"a": -2, "b": 0.5}),
    ("power", {"a": 10, "b": 400}),
    ("log", {"a": 0, "base": 2}),
    ("log", {"a": 1, "base": -1.5}),
    ("negate", {"a": 1.79e308}),
    ("sin", {"radians": 1.79e308}),
    ("cos", {"radians": 1.79e308}),
]
"""Calls of every operator that a universe with great coefficients refuses."""


@pytest.mark.parametrize(("name", "arguments"), IMPOSSIBLE)
def test_what_an_operator_refuses_is_told_under_its_shown_name(name, arguments):
    env = REGISTRY.env(MATH).make()
    messages = {}
    for shaping in (AS_THEY_ARE, BOTH):
        episode = Episode(EpisodeSpec(MATH, shaping=shaping), env)
        env.universe = env.universe._replace(negate=2, angle=2)
        box = box_of(MATH, shaping)
        [reply] = take(episode, [ToolCall(box.shown(name), json.dumps(arguments))])
        error = json.loads(reply.transition.observation)["error"]
        assert error["code"] == "tool_error"
        messages[box.shown(name)] = error["message"]
    [(own, plain), (shown, renamed)] = messages.items()
    assert own in plain.split()
    assert not [word for word in renamed.split() if word in tools_of(MATH)]
    assert renamed == " ".join(shown if word == own else word for word in plain.split())


@pytest.mark.parametrize("shaping", [AS_THEY_ARE, *SHAPINGS], ids=str)
def test_the_record_holds_it_and_a_replay_has_it(shaping):
    task = task_of(ORDERS)
    episode = begin(task, shaping)
    started = codec.started_event(episode, REGISTRY.env(ORDERS), {})
    assert started.HasField("tool_shaping") == (shaping != AS_THEY_ARE)
    again, _, difference = replay.begin(
        type(started).FromString(started.SerializeToString()), REGISTRY
    )
    assert difference is None
    assert again.spec == episode.spec
    assert codec.shaping_from_proto(codec.spec_to_started(again.spec).tool_shaping) == shaping
    started.tool_shaping.distractors = 1 if shaping.distractors != 1 else 2
    _, _, difference = replay.begin(started, REGISTRY)
    assert difference.field == "tools_sha256"


def test_a_seed_alone_shapes_nothing():
    message = codec.shaping_to_proto(ToolShaping(0, False, 7))
    assert codec.shaping_from_proto(message) == AS_THEY_ARE


# Over the wire


@pytest.fixture
def client(server):
    with railgym.connect(server.address) as client:
        yield client


def test_a_session_shows_plays_forks_and_resumes_with_shaped_tools(client, server):
    task = task_of(ORDERS, "L3")
    labels = {"agent": "oracle", "run": "shaped", "trial": "1"}
    actions = shaped_gold(task, BOTH)
    session = client.session(task_id=task.task_id, labels=labels, tools=BOTH)
    assert session.env.tools == tuple(tools_for(REGISTRY.env(ORDERS).env_class, (), BOTH))
    session.reset(seed=1)
    for action in actions[:3]:
        session.step(action)
    fork = session.fork(step=2)
    again = client.resume(session.id)
    assert again.env == fork.env == session.env
    ends = [play_on(again, actions[3:]), play_on(fork, actions[2:])]
    assert [last.reward for last in ends] == [1, 1]
    ids = [f"{session.id}.1", f"{fork.id}.1"]
    for score in client.score(ids):
        assert (score.outcome, score.success) == ("VERIFIED", True)
        assert score.labels == {**labels, "rails": "6 distractors, renamed"}
    for logged in episodes(server.log_dir):
        if logged.episode_id in ids:
            assert codec.shaping_from_proto(logged.started.tool_shaping) == BOTH


def test_a_task_names_the_tools_that_it_allows_as_they_are_shown(serve, tmp_path):
    names = ["get_order", "find_customers"]
    task = task_of(ORDERS).model_copy(update={"task_id": "own", "allowed_tools": names})
    served = serve(Registry({"own": task}))
    with railgym.connect(served.address) as client:
        assert client.session(task_id="own").task.allowed_tools == tuple(names)
        session = client.session(task_id="own", tools=BOTH)
        session.reset()
        for some in (session, client.resume(session.id)):
            allowed = some.task.allowed_tools
            assert allowed == tuple(tool.name for tool in some.env.tools)
            assert len(allowed) == len(names) + BOTH.distractors
            assert set(map(box_of(ORDERS, BOTH).shown, names)) < set(allowed)


def test_gymnasiums_environments_have_shaped_tools_too(server):
    shown = [tool.name for tool in tools_for(REGISTRY.env(MATH).env_class, (), BOTH)]
    with railgym.make(MATH, server.address, tools=BOTH) as env:
        assert [tool.name for tool in env.action_space.tools] == shown
        again = EnvSpec.from_json(env.spec.to_json())
    with again.make() as env:
        assert [tool.name for tool in env.unwrapped.action_space.tools] == shown
    envs = railgym.make_vec(MATH, 2, server.address, tools=BOTH)
    assert [tool.name for tool in envs.single_action_space.tools] == shown
    envs.close()


def play_on(session, actions):
    for action in actions:
        last = session.step(action)
    session.close()
    return last


def test_a_restarted_server_goes_on_with_shaped_tools(serve, tmp_path):
    task = task_of(ORDERS)
    actions = shaped_gold(task, BOTH)
    first = serve(log_dir=tmp_path / "log")
    with railgym.connect(first.address) as client:
        session = client.session(task_id=task.task_id, tools=BOTH)
        session.reset()
        session.step(actions[0])
        shown = session.env
    serve.stop(first)
    second = serve(log_dir=tmp_path / "log")
    with railgym.connect(second.address) as client:
        again = client.resume(session.id)
        assert again.env == shown
        assert play_on(again, actions[1:]).reward == 1


def test_rails_have_a_row_of_their_own(serve, tmp_path):
    task = task_of("railgym/Typewriter-v1")
    served = serve(log_dir=tmp_path / "log")
    with railgym.connect(served.address) as client:
        for shaping in (AS_THEY_ARE, ToolShaping(1), ToolShaping(0, True)):
            labels = {"agent": "oracle", "run": "r", "trial": "1"}
            session = client.session(task_id=task.task_id, labels=labels, tools=shaping)
            session.reset()
            play_on(session, shaped_gold(task, shaping))
    summary = summarise(score_log(served.log_dir, REGISTRY))
    agents = [row.agent for row in summary.rows]
    assert agents == ["oracle", "oracle [1 distractor]", "oracle [renamed]"]
    assert [(row.success.held, row.success.n) for row in summary.rows] == [(1, 1)] * 3


def test_an_environment_in_a_process_of_its_own_is_shaped_too(client):
    shaping = ToolShaping(2, renamed=True, seed=1)
    with client.session(NOTES, tools=shaping) as session:
        session.reset(seed=1)
        assert len(session.env.tools) == 4
        write = next(tool for tool in session.env.tools if "Adds a line" in tool.description)
        assert session.call(write.name, line="x").observation == '{"result":1}'
        assert session.call("write", line="x").info == {"fault": "unknown_tool"}
    [score] = client.score([f"{session.id}.1"])
    assert score.outcome == "VERIFIED"


@pytest.mark.parametrize(
    ("env_id", "shaping", "field"),
    [
        (ORDERS, ToolShaping(25), "tool_shaping.distractors"),
        ("CartPole-v1", ToolShaping(1), "tool_shaping"),
        ("railgym/TypewriterPolicy-v1", ToolShaping(0, renamed=True), "tool_shaping"),
    ],
)
def test_a_shaping_that_cannot_be_is_refused(envs, env_id, shaping, field):
    asked = codec.shaping_to_proto(shaping)
    refusal = raw.refusal(
        envs.CreateSession, pb.CreateSessionRequest(env_id=env_id, tool_shaping=asked)
    )
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "BAD_REQUEST")
    assert refusal.metadata["field"] == field


def test_a_creation_with_another_shaping_is_another_one(envs):
    asked = codec.shaping_to_proto(BOTH)
    fields = {"request_id": "shaped", "tool_shaping": asked}
    session_id = raw.create(envs, ORDERS, **fields)
    assert raw.create(envs, ORDERS, **fields) == session_id
    request = pb.CreateSessionRequest(env_id=ORDERS, request_id="shaped")
    assert raw.refusal(envs.CreateSession, request).reason == "BAD_REQUEST"
    raw.close(envs, session_id)


def test_numbers_that_do_not_fit_the_wire_are_refused_here(client):
    for shaping in (ToolShaping(-1), ToolShaping(1, seed=2**64), ToolShaping(1, seed=-1)):
        with pytest.raises(ValueError, match="out of range"):
            client.session(ORDERS, tools=shaping)


def test_a_person_plays_with_shaped_tools_too(tmp_path):
    task = task_of("railgym/Typewriter-v1", "L1")
    shown = box_of(task.env_id, ToolShaping(2, renamed=True)).shown("type_letter")
    letter = task.options["target"][0]
    options = ["--distractors", "2", "--rename-tools", "--log-dir", str(tmp_path), "--json"]
    typed = f"{shown} {letter}\ntype_letter {letter}\n"
    done = CliRunner().invoke(app, ["play", task.task_id, *options], input=typed)
    assert done.exit_code == 0, done.output
    assert "no tool 'type_letter'; nearest" in done.stdout
    [score] = score_log(tmp_path, REGISTRY)
    assert (score.outcome, score.steps, score.tools_used) == ("VERIFIED", 1, ["type_letter"])
    assert score.labels["rails"] == "2 distractors, renamed"


def test_without_a_shaping_nothing_is_said_of_it(client, server):
    with client.session("railgym/Typewriter-v1", labels={"agent": "a"}) as session:
        session.reset(options={"target": "a"})
        session.step(Final(""))
        where = raw_where(session)
    assert not where.HasField("env")
    [logged] = [e for e in episodes(server.log_dir) if e.episode_id == f"{session.id}.1"]
    assert not logged.started.HasField("tool_shaping")
    assert dict(logged.started.labels) == {"agent": "a"}


def raw_where(session):
    return session._route.ask(
        lambda envs: envs.GetSession, pb.GetSessionRequest(session_id=session.id)
    )
