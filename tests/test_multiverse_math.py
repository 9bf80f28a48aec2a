"""The reference universe gives the published values, others give their own; none ever raises."""

import json
import math

import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from env_server.env import Final, ToolCall
from env_server.envs.multiverse_math import OURS, MultiverseMath, Universe
from env_server.errors import BadOptions
from env_server.tasks import bundled_tasks

PUBLISHED = [
    6.2,
    -4,
    -5,
    32,
    32.34,
    6.222318693323366,
    102518.7812110542,
    176.0,
    0.035457422151326225,
    0.12458791713770623,
    -131778,
    2.718281828459045,
    0.41078129050290885,
    32944.5,
    154091.2,
    10.399999999999999,
    3.2,
    19.8,
    65.80000000000001,
    0.5,
]
"""Values of the 20 public questions, in their order."""

OPERANDS = {"pi": (), "negate": (3,), "sin": (3,), "cos": (3,)}
"""Where an operator of ours is looked at; (7, 3) for those that are not named."""

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.sampled_from([0, -0.0, 5e-324, 1.7e308, -1.5, -0.5, -2.5]),
)


def make(universe="reference", seed=0):
    env = MultiverseMath()
    env.reset(seed=seed, options={"universe": universe})
    return env


def call(env, name, *operands):
    names = MultiverseMath.TOOLS[name].spec.parameters["properties"]
    return env.step(ToolCall(name, json.dumps(dict(zip(names, operands, strict=True)))))


def value(env, name):
    return json.loads(call(env, name, *OPERANDS.get(name, (7, 3))).observation)["result"]


@pytest.mark.parametrize("number", range(1, 21))
def test_reference_questions_have_the_published_values(number):
    task = bundled_tasks()[f"multiverse_math/reference/{number:02}"]
    assert make().reference(task.expected) == PUBLISHED[number - 1]


def test_ten_operators_in_order_with_float_parameters():
    tools = MultiverseMath().action_space.tools
    names = "multiply add divide subtract power log negate sin cos pi"
    assert [tool.name for tool in tools] == names.split()
    kinds = {p["type"] for tool in tools for p in tool.parameters["properties"].values()}
    assert kinds == {"number"}


def test_gymnasium_accepts_it(recwarn):
    check_env(MultiverseMath(), skip_render_check=True)


@pytest.mark.parametrize("name", MultiverseMath.TOOLS)
def test_every_operator_of_every_drawn_universe_differs_from_ours(name):
    ours = make()
    ours.universe = OURS
    expected = value(ours, name)
    drawn = [value(make(universe), name) for universe in range(60)]
    assert not [got for got in drawn if math.isclose(got, expected, rel_tol=1e-6)]


def test_a_number_names_a_universe_and_the_seed_has_no_say():
    assert make(7, seed=1).universe == make(7, seed=2).universe
    universes = {make(number).universe for number in range(200)}
    hashes = {make(number).state_hash() for number in range(200)}
    assert len(universes) == len(hashes) == 200


def test_the_episodes_seed_draws_the_universe():
    assert make("episode", seed=3).universe == make("episode", seed=3).universe
    assert len({make("episode", seed=seed).state_hash() for seed in range(50)}) == 50
    env = make("episode", seed=3)
    first = env.universe
    env.reset(options={"universe": "episode"})
    assert env.universe != first


def test_the_default_is_the_reference_universe():
    env = MultiverseMath()
    env.reset(seed=5)
    assert env.universe == Universe()
    assert env.state_hash() == make().state_hash()


@pytest.mark.parametrize("universe", ["ours", -1, 2**63, 1.5, True, None])
def test_other_universes_are_refused(universe):
    with pytest.raises(BadOptions, match="option 'universe': expected 'reference', 'episode' or"):
        make(universe)


def test_what_an_agent_or_a_viewer_sees_holds_no_coefficient():
    env = make(7)
    observation, _ = env.reset(options={"universe": 7})
    seen = observation + env.render() + "".join(t.description for t in env.action_space.tools)
    assert not [c for c in env.universe if isinstance(c, float) and str(c) in seen]


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("divide", (1, 0)),
        ("divide", (1, -0.0)),
        ("divide", (1e308, 1e-308)),
        ("log", (0, 10)),
        ("log", (-3, 10)),
        ("log", (3, -1.5)),
        ("log", (3, -0.5)),
        ("log", (3, -2.5)),
        ("power", (0, -5)),
        ("power", (-8, 0.5)),
        ("power", (10, 10**8)),
        ("multiply", (1e308, 1e308)),
        ("add", (1.7e308, 1.7e308)),
        ("subtract", (-1.7e308, 1.7e308)),
    ],
)
def test_what_has_no_value_is_a_tool_error(name, operands):
    env = make()
    before = env.state_hash()
    seen = call(env, name, *operands)
    assert seen.info == {"fault": "tool_error"}
    assert name in json.loads(seen.observation)["error"]["message"]
    assert env.state_hash() == before


@pytest.mark.parametrize("text", ['{"a":1e400}', '{"a":NaN}', '{"a":%s}' % ("9" * 5000)])
def test_numbers_beyond_floats_are_bad_arguments(text):
    assert make().step(ToolCall("negate", text)).info == {"fault": "bad_arguments"}


@given(data=st.data(), universe=st.one_of(st.just("reference"), st.integers(0, 2**63 - 1)))
@settings(deadline=None, max_examples=150)
def test_no_operands_raise_and_every_result_is_finite(data, universe):
    env = make(universe)
    before = env.state_hash()
    name = data.draw(st.sampled_from(list(MultiverseMath.TOOLS)))
    operands = [data.draw(NUMBERS) for _ in MultiverseMath.TOOLS[name].required]
    seen = call(env, name, *operands)
    assert env.observation_space.contains(seen.observation)
    if "fault" not in seen.info:
        assert math.isfinite(json.loads(seen.observation)["result"])
        assert seen.observation != '{"result":-0.0}'
    assert env.state_hash() == before


def test_calls_change_no_state_and_an_answer_ends():
    env = make()
    copy = env.fork()
    call(env, "add", 1, 2)
    assert env.state_hash() == copy.state_hash()
    assert call(copy, "add", 1, 2) == call(env, "add", 1, 2)
    assert env.step(Final("4.2")).terminated


def test_an_expression_is_worth_what_its_calls_give():
    env = make(11)
    inner = json.loads(call(env, "divide", 120, 20).observation)["result"]
    outer = json.loads(call(env, "power", 2, inner).observation)["result"]
    assert env.reference(" power(2, divide(120, 20.0))") == outer
    assert env.reference("-2.5") == -2.5


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "True",
        "1j",
        "'1'",
        "1 + 2",
        "-add(1, 2)",
        "--1",
        "add(1)",
        "add(1, 2, 3)",
        "add(*pi())",
        "add(a=1, b=2)",
        "f(1)",
        "pi",
        "pi().real",
        "state()",
        "__import__('os').system('true')",
        "divide(1, 0)",
        "1e999",
        "negate(" + "9" * 400 + ")",
        "9" * 5000,
        "-" * 3900 + "1",
        "(" * 1900 + "1" + ")" * 1900,
        "add(1, " * 40 + "1" + ")" * 40,
        "pi()\0",
    ],
)
def test_other_expressions_are_refused(expression):
    with pytest.raises(ValueError, match=r"expected|divide needs"):
        make().reference(expression)


@given(st.text(alphabet="addpi(),1.-e \n[]lambda:_'\"\\{}", max_size=80))
@settings(deadline=None, max_examples=200)
def test_no_text_of_an_expression_does_more_than_raise_value_error(text):
    try:
        found = make().reference(text)
    except ValueError:
        return
    assert math.isfinite(found)
