"""What holds for every environment: it never fails for an action, and it replays to the bit."""

import hashlib
import json
import string
import warnings
from itertools import count

import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from env_server import codec
from env_server.arguments import canonical_json
from env_server.env import Final, NoAction, Plain, Text, ToolCall, ToolEnv
from env_server.envs import ENVS
from env_server.envs.hosted import generator_state
from env_server.episode import Episode, EpisodeSpec
from env_server.errors import BadOptions
from env_server.registry import Registry
from env_server.scoring import replay
from railgym import codec as wire
from railgym.agents import Briefing, idle, play, random
from railgym.v1 import episode_pb2 as pb

REGISTRY = Registry()
REGISTRY.add("CartPole-v1")
ENV_IDS = sorted(REGISTRY.envs)
TOOL_IDS = [env_id for env_id in ENV_IDS if not REGISTRY.env(env_id).is_plain]

DRAWN = {
    "railgym/MultiverseMath-v1": {"universe": "episode"},
    "railgym/Orders-v1": {"world": "episode", "customers": 20},
    "railgym/Relational-v1": {"world": "episode", "users": 20},
}
"""Options under which an environment's seed decides; the others always follow their seed."""

BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For machines that do something else besides."""

FAULTS = {
    "format_error",
    "unknown_tool",
    "not_allowed",
    "bad_arguments",
    "tool_error",
    "truncated_output",
    "empty_response",
    "refusal",
}
CODE = st.text(st.characters(exclude_categories=()), max_size=30)

HOSTILE_NAMES = st.sampled_from(
    [
        "",
        "reset",
        "state",
        "final",
        "__class__",
        "_begin",
        "multi_tool_use.parallel",
        "__import__('os').system",
        "'; DROP TABLE users; --",
        "../../etc/passwd",
        "${HOME}",
        "{0.__class__}",
        "type_letter\x00",
        "\ud800",
        "x" * 70_000,
    ]
)
HOSTILE_VALUES = st.sampled_from(
    [
        "NaN",
        "-Infinity",
        "1e400",
        "-0.0",
        "1e308",
        "-1.7976931348623157e308",
        "5e-324",
        "0e99999999999999999999",
        "1e-99999999999999999999",
        "9007199254740993",
        "9" * 400,
        "9" * 5_000,
        "-" + "9" * 1_000,
        "true",
        "null",
        '""',
        '"25"',
        '"\\ud800"',
        '"' + "x" * 70_000 + '"',
        '"\'; DROP TABLE users; --"',
        '"{0.__class__}${HOME}%s"',
        "[]",
        "[" * 40 + "]" * 40,
        "[" * 5_000 + "]" * 5_000,
        '{"$step":1}',
        '{"a":1,"a":2}',
    ]
)
HOSTILE_ARGUMENTS = CODE | st.sampled_from(
    [
        "",
        " ",
        "null",
        '""',
        '{}""',
        "{}{}",
        "[]",
        '{"letter":"a"',
        "please type a",
        "{" * 1_500,
        '{"a":' * 990,
        " " * 70_000,
        '{"a":1,"a":1}',
        "{" + ",".join(f'"{i}":0' for i in range(5_000)) + "}",
    ]
)


@st.composite
def tool_calls(draw, tools):
    """A call to a tool with arguments of its names, most of them with values that fit."""
    tool = draw(st.sampled_from(tools))
    fields = {}
    for name, schema in tool.parameters["properties"].items():
        kind = schema.get("type")
        fitting = {
            "integer": st.integers(-3, 40).map(str),
            "number": st.floats(-20, 20).map(repr) | st.integers(-5, 5).map(str),
        }.get(kind, st.sampled_from(string.ascii_letters).map(json.dumps))
        fields[name] = draw(fitting | fitting | fitting | HOSTILE_VALUES)
    text = ",".join(f'"{name}":{value}' for name, value in fields.items())
    return ToolCall(tool.name, f"{{{text}}}")


def tool_actions(env):
    tools = [tool.spec for tool in env.TOOLS.values()]
    calls = tool_calls(tools)
    names = st.sampled_from([tool.name for tool in tools])
    wrapped = calls.map(
        lambda call: Text(f'So: {{"action":"{call.name}","action_input":{call.arguments_json}}}')
    )
    turns = st.builds(NoAction, st.sampled_from(["truncated_output", "empty_response"]), CODE)
    return st.one_of(
        calls,
        calls,
        calls,
        st.builds(ToolCall, names, HOSTILE_ARGUMENTS),
        st.builds(ToolCall, HOSTILE_NAMES | CODE, st.just("{}") | HOSTILE_ARGUMENTS),
        wrapped,
        st.builds(Text, HOSTILE_ARGUMENTS),
        turns,
    )


ENDS = st.builds(Final, CODE | st.just("x" * 70_000)) | st.builds(
    NoAction, st.just("refusal"), CODE
)


@st.composite
def episodes(draw, env_id):
    """The options and the actions of an episode; each action as it comes off the wire."""
    env = REGISTRY.env(env_id).make()
    options = draw(st.sampled_from([{}, DRAWN.get(env_id, {})]))
    if REGISTRY.env(env_id).is_plain:
        space = env.action_space
        values = st.integers(0, int(space.n) - 1).map(np.int64)
        actions = draw(st.lists(st.builds(Plain, values), max_size=12))
    else:
        space = None
        if env_id.startswith("railgym/Typewriter"):
            options = draw(st.sampled_from([{}, {"target": "aab", "finish": "final"}]))
        actions = draw(st.lists(tool_actions(env), max_size=10))
        actions += draw(st.lists(ENDS, max_size=1))
    travelled = [wire.action_to_proto(action, space) for action in actions]
    return options, [wire.action_from_proto(action, space) for action in travelled]


def begin(env_id, options=None, seed=3, rule="strict", env=None):
    env = env or REGISTRY.env(env_id).make()
    return Episode(EpisodeSpec(env_id, None, options or {}, seed=seed, rule=rule), env)


def take(episode, actions):
    """Takes steps until the episode ends."""
    replies = []
    for action in actions:
        if episode.end is not None:
            break
        replies.append(episode.step(episode.latest + 1, action))
    return replies


def bits(episode, replies):
    """What an episode gave, to the bit."""
    start = codec.started_event(episode, REGISTRY.env(episode.spec.env_id), {})
    messages = [codec.reply_to_proto(reply, episode.env) for reply in replies]
    return [m.SerializeToString(deterministic=True) for m in (start, *messages)]


@pytest.mark.parametrize("env_id", ENVS)
def test_gymnasium_accepts_it_without_a_warning(env_id):
    env = ENVS[env_id](render_mode="ansi")
    env.spec = EnvSpec("test/It-v1", entry_point=ENVS[env_id])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)


@pytest.mark.parametrize("env_id", ENV_IDS)
@given(data=st.data(), rule=st.sampled_from(["strict", "lenient"]))
@settings(BUSY, max_examples=60)
def test_no_action_fails_and_an_episode_is_a_value(env_id, data, rule):
    options, actions = data.draw(episodes(env_id))
    episode = begin(env_id, options, rule=rule)
    replies = take(episode, actions)
    assert len(replies) == episode.latest
    other = begin(env_id, options, rule=rule)
    assert bits(episode, replies) == bits(other, take(other, actions))
    follow(episode, replies)


def follow(episode, replies):
    """Writes what happened as a server does, and replays it."""
    entry = REGISTRY.env(episode.spec.env_id)
    started = codec.started_event(episode, entry, {"agent": "x"})
    again, entry, difference = replay.begin(sent(started), REGISTRY)
    assert difference is None, str(difference)
    space = episode.env.action_space if entry.is_plain else None
    for number, (action, reply) in enumerate(zip(episode.actions, replies, strict=True), start=1):
        taken = pb.StepTaken(
            step=number,
            action=wire.action_to_proto(action, space),
            transition=codec.reply_to_proto(reply, episode.env),
        )
        _, difference = replay.follow(again, entry, sent(taken))
        assert difference is None, str(difference)
    ended = pb.EpisodeEnded(
        reason=wire.end_reason_to_proto(episode.end), state_hash=episode.state_hash
    )
    assert replay.finish(again, sent(ended)) is None
    assert again.calls == episode.calls


def sent(message):
    return type(message).FromString(message.SerializeToString())


@pytest.mark.parametrize("env_id", TOOL_IDS)
@given(data=st.data())
@settings(BUSY, max_examples=60)
def test_a_fault_changes_nothing_and_everything_is_in_its_bounds(env_id, data):
    options, actions = data.draw(episodes(env_id))
    episode = begin(env_id, options)
    state_hash = episode.start.state_hash
    assert episode.env.observation_space.contains(episode.start.observation)
    for reply in take(episode, actions):
        seen, info = reply.transition, reply.transition.info
        assert episode.env.observation_space.contains(seen.observation)
        assert canonical_json(json.loads(seen.observation)) == seen.observation
        assert set(info) <= {"fault", "repaired"}
        if "fault" in info:
            assert info["fault"] in FAULTS
            assert json.loads(seen.observation)["error"]["code"] == info["fault"]
            assert len(seen.observation) < 4_000
            assert seen.reward == 0.0
            assert seen.terminated == (info["fault"] == "refusal")
            assert reply.state_hash == state_hash
        else:
            assert [*json.loads(seen.observation)] == ["result"]
        assert np.isfinite(seen.reward)
        assert len(reply.state_hash) == 32
        state_hash = reply.state_hash


@pytest.mark.parametrize("env_id", ENV_IDS)
@given(data=st.data())
@settings(BUSY, max_examples=20)
def test_looking_changes_nothing(env_id, data):
    options, actions = data.draw(episodes(env_id))
    episode, other = begin(env_id, options), begin(env_id, options)
    for action in actions:
        if episode.end is not None:
            break
        assert other.env.state_hash() == other.env.state_hash() == episode.state_hash
        replies = [e.step(e.latest + 1, action) for e in (episode, other)]
        assert data_equivalence(*replies, exact=True)
    if isinstance(other.env, ToolEnv):
        states = [canonical_json(other.env.state()) for _ in range(2)]
        assert hashlib.sha256(states[0].encode()).digest() == other.env.state_hash()
        assert states[0] == states[1]
    if env_id in ENVS:
        assert other.env.render() == other.env.render()
        assert other.env.state_hash() == other.state_hash


@pytest.mark.parametrize("env_id", TOOL_IDS)
@given(data=st.data())
@settings(BUSY, max_examples=30)
def test_a_fork_goes_on_like_its_parent_and_leaves_it_alone(env_id, data):
    options, actions = data.draw(episodes(env_id))
    calls = [action for action in actions if isinstance(action, ToolCall)]
    env = REGISTRY.env(env_id).make()
    env.reset(seed=data.draw(st.integers(0, 5)), options=options)
    for call in calls:
        env.step(call)
    before = env.state_hash(), env.render(), generator_state(env)
    fork = env.fork()
    assert (fork.state_hash(), fork.render(), generator_state(fork)) == before
    space = env.action_space
    space.seed(1)
    more = [space.sample() for _ in range(20)]
    there = [fork.step(call) for call in more]
    assert (env.state_hash(), env.render(), generator_state(env)) == before
    assert [env.step(call) for call in more] == there
    assert (fork.state_hash(), generator_state(fork)) == (env.state_hash(), generator_state(env))
    assert fork.reset(options=options) == env.reset(options=options)
    assert fork.state_hash() == env.state_hash()


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_a_seed_decides_all_and_another_seed_something(env_id):
    options = DRAWN.get(env_id, {})

    def two_starts(seed):
        """A seeded episode and an unseeded one after it."""
        env = REGISTRY.env(env_id).make()
        first = begin(env_id, options, seed, env=env)
        starts = [fingerprint(env)]
        took = bits(first, take(first, sampled(env, 20)))
        begin(env_id, options, None, env=env)
        return [*starts, fingerprint(env)], took

    assert two_starts(0) == two_starts(0)
    (first, later), _ = two_starts(0)
    assert first != later
    assert len({repr(two_starts(seed)[0][0]) for seed in range(8)}) == 8


def sampled(env, number):
    env.action_space.seed(11)
    plain = not isinstance(env, ToolEnv)
    actions = [env.action_space.sample() for _ in range(number)]
    return [Plain(action) for action in actions] if plain else actions


def fingerprint(env):
    """All that a seed may decide, what cannot be seen of it included."""
    hidden = getattr(env, "target", "")
    return env.state_hash(), hidden, generator_state(env)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_the_default_seed_is_not_an_unset_one(env_id):
    options = DRAWN.get(env_id, {})
    env = REGISTRY.env(env_id).make()
    begin(env_id, options, 0, env=env)
    seeded = fingerprint(env)
    begin(env_id, options, None, env=env)
    unset = fingerprint(env)
    begin(env_id, options, 0, env=env)
    assert fingerprint(env) == seeded != unset


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_two_instances_share_no_generator_and_no_state(env_id):
    options = DRAWN.get(env_id, {})
    one, other = REGISTRY.env(env_id).make(), REGISTRY.env(env_id).make()
    begin(env_id, options, 1, env=one)
    alone = fingerprint(one)
    sampler = one.action_space
    sampler.seed(7)
    drawn = sampler.sample()
    sampler.seed(7)
    begin(env_id, options, 2, env=other)
    other.action_space.seed(8)
    other.observation_space.seed(8)
    take(begin(env_id, options, 3, env=other), sampled(other, 10))
    other.action_space.sample()
    assert fingerprint(one) == alone
    assert repr(sampler.sample()) == repr(drawn)


@pytest.mark.parametrize("env_id", TOOL_IDS)
def test_what_its_space_draws_can_be_read(env_id):
    env = REGISTRY.env(env_id).make()
    env.action_space.seed(0)
    called = set()
    for _ in range(50 * len(env.TOOLS)):
        call = env.action_space.sample()
        assert env.read(call).tool is env.TOOLS[call.name]
        called.add(call.name)
    assert called == set(env.TOOLS)


@pytest.mark.parametrize("env_id", ["railgym/Relational-v1", "railgym/MultiverseMath-v1"])
def test_reading_more_often_leaves_the_state_as_it_was(env_id):
    episode = begin(env_id, DRAWN[env_id])
    replies = take(episode, sampled(episode.env, 60))
    assert {reply.state_hash for reply in replies} == {episode.start.state_hash}
    assert any("fault" not in reply.transition.info for reply in replies)


@pytest.mark.parametrize("env_id", TOOL_IDS)
def test_options_that_it_does_not_have_are_refused_by_name(env_id):
    schema = REGISTRY.env(env_id).options_schema
    for options in ({"no_such_option": 1}, *({name: [{}]} for name in schema["properties"])):
        with pytest.raises(BadOptions) as caught:
            begin(env_id, options)
        assert caught.value.metadata["option"] == next(iter(options))
        assert caught.value.metadata["expected"]
        assert caught.value.metadata["got"]


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_options_stand_in_the_record_so_that_a_replay_has_them(env_id):
    options = DRAWN.get(env_id, {"target": "abc"} if "Typewriter" in env_id else {})
    episode = begin(env_id, options)
    started = codec.started_event(episode, REGISTRY.env(env_id), {})
    assert json.loads(started.options_json) == options
    again, _, difference = replay.begin(sent(started), REGISTRY)
    assert difference is None
    assert again.spec == episode.spec


@pytest.mark.parametrize("env_id", ENV_IDS)
@pytest.mark.parametrize("agent", [idle, random])
def test_scripted_agents_end_every_episode_in_the_same_way_each_time(env_id, agent):
    def played(seed):
        episode = begin(env_id)
        briefing = Briefing("", episode.env.action_space, episode.start.observation, {}, seed)
        last = play(
            agent(briefing), lambda m: episode.step(episode.latest + 1, m.action).transition
        )
        assert last.terminated or last.truncated
        assert episode.end is not None
        return repr(episode.actions)

    assert played(1) == played(1)
    if agent is random:
        assert len({played(seed) for seed in range(6)}) > 1


def test_a_large_id_arrives_as_it_is():
    episode = begin("railgym/Relational-v1")
    call = ToolCall("get_user_name", '{"user_id":9007199254740993}')
    [reply] = take(episode, [call])
    assert "9007199254740993" in reply.transition.observation
    assert episode.calls[0].arguments == {"user_id": 9007199254740993}
    assert sent(wire.action_to_proto(call)).tool_call.arguments_json == call.arguments_json


def test_hostile_numbers_are_cut_off_at_once():
    episode = begin("railgym/MultiverseMath-v1")
    numbers = count(1)
    for a, b in [
        ("10", "1e8"),
        ("-8", "0.5"),
        ("1e300", "1e300"),
        ("0", "-5"),
        ("9" * 300, "9" * 300),
    ]:
        reply = episode.step(next(numbers), ToolCall("power", f'{{"a":{a},"b":{b}}}'))
        assert reply.transition.info == {"fault": "tool_error"}
    for name, arguments in [("divide", '{"a":1,"b":0}'), ("log", '{"a":0,"base":10}')]:
        reply = episode.step(next(numbers), ToolCall(name, arguments))
        assert reply.transition.info == {"fault": "tool_error"}
