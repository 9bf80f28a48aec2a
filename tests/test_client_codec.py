"""Spaces, values, actions and transitions survive the wire unchanged."""

import contextlib
import string

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import railgym
from railgym import codec
from railgym.v1 import episode_pb2, space_pb2

LIMIT = settings(deadline=None, max_examples=60)

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# Not (): Gymnasium's own checks warn of its own values of such a Box.
SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)
CHARSETS = st.sampled_from([string.ascii_letters, "aé中😀", '{}",:'])

TOOLS = railgym.ToolSpace(
    [
        railgym.ToolSpec(
            "add",
            "Adds.",
            {
                "type": "object",
                "properties": {"b": {"type": "number"}, "a": {"enum": ["é", None, 1]}},
                "required": ["b"],
                "additionalProperties": False,
            },
        ),
        railgym.ToolSpec("stop", "", {"type": "object", "properties": {}}),
    ]
)


@st.composite
def boxes(draw):
    dtype = np.dtype(draw(st.sampled_from([*INTEGERS, "float16", "float32", "float64", "bool"])))
    shape = draw(SHAPES)
    if dtype.kind == "f":
        low, high = draw(st.sampled_from([(-1.5, 2.25), (-np.inf, np.inf), (0.0, np.inf)]))
    else:
        low, high = (0, 1) if dtype.kind == "b" else draw(st.sampled_from([(0, 9), (2, 120)]))
    if draw(st.booleans()):
        lows = np.full(shape, low, dtype)
        return spaces.Box(lows, np.full(shape, high, dtype), dtype=dtype.type)
    return spaces.Box(low, high, shape, dtype.type)


def discretes():
    return st.builds(
        lambda n, start, dtype: spaces.Discrete(n, start=start, dtype=np.dtype(dtype).type),
        st.integers(1, 50),
        st.integers(0, 50),
        st.sampled_from(INTEGERS),
    )


@st.composite
def multi_discretes(draw):
    dtype = np.dtype(draw(st.sampled_from(INTEGERS)))
    nvec = draw(hnp.arrays(dtype, SHAPES, elements=st.integers(1, 20)))
    start = draw(hnp.arrays(dtype, nvec.shape, elements=st.integers(0, 20)))
    return spaces.MultiDiscrete(nvec, dtype.type, start=start)


MULTI_BINARIES = st.one_of(st.integers(1, 5), st.lists(st.integers(1, 3), min_size=2, max_size=3))
TEXTS = st.builds(
    lambda low, more, chars: spaces.Text(low + more, min_length=low, charset=chars),
    st.integers(0, 3),
    st.integers(0, 4),
    CHARSETS,
)
GRAPHS = st.builds(
    spaces.Graph,
    st.one_of(boxes(), discretes()),
    st.one_of(st.none(), boxes(), discretes()),
)
LEAVES = st.one_of(
    boxes(),
    discretes(),
    MULTI_BINARIES.map(spaces.MultiBinary),
    multi_discretes(),
    TEXTS,
    GRAPHS,
)


def nested(inner):
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        some.map(spaces.Tuple),
        st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=3).map(spaces.Dict),
        some.map(spaces.OneOf),
        st.builds(lambda space, stack: spaces.Sequence(space, stack=stack), inner, st.booleans()),
    )


SPACES = st.recursive(LEAVES, nested, max_leaves=6)


def over_the_wire(message):
    return type(message).FromString(message.SerializeToString())


@LIMIT
@given(space=SPACES)
def test_a_space_survives_the_wire(space):
    again = codec.space_from_proto(over_the_wire(codec.space_to_proto(space)))
    assert again == space
    assert again.dtype == space.dtype
    assert codec.space_to_proto(again) == codec.space_to_proto(space)


@LIMIT
@given(space=SPACES, seed=st.integers(0, 2**31))
def test_a_value_survives_the_wire(space, seed):
    space.seed(seed)
    value = space.sample()
    message = over_the_wire(codec.value_to_proto(value, space))
    again = codec.value_from_proto(message, space)
    assert data_equivalence(value, again, exact=True)
    assert space.contains(again)


@LIMIT
@given(space=SPACES, seed=st.integers(0, 2**31))
def test_a_space_that_was_read_makes_values_for_the_one_that_was_written(space, seed):
    again = codec.space_from_proto(codec.space_to_proto(space))
    again.seed(seed)
    assert space.contains(again.sample())


def test_the_registered_environments_of_gymnasium_have_spaces_that_travel():
    env = gymnasium.make("CartPole-v1")
    for space in (env.action_space, env.observation_space):
        again = codec.space_from_proto(over_the_wire(codec.space_to_proto(space)))
        assert again == space
        assert repr(again) == repr(space)


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_a_box_of_integers_stays_unbounded(dtype):
    space = spaces.Box(-np.inf, np.inf, (2,), dtype)
    again = codec.space_from_proto(codec.space_to_proto(space))
    assert again == space
    assert not again.is_bounded("below")
    assert not again.is_bounded("above")


def test_a_bound_that_holds_for_every_element_travels_once():
    message = codec.space_to_proto(spaces.Box(0, 255, (84, 84, 4), np.uint8))
    assert len(message.SerializeToString()) < 100


def test_a_space_of_tools_survives_the_wire():
    again = codec.space_from_proto(over_the_wire(codec.space_to_proto(TOOLS)))
    assert again == TOOLS
    orders = [list(tool.parameters["properties"]) for tool in again.tools if tool.name == "add"]
    assert orders == [["b", "a"]]
    TOOLS.seed(7)
    again.seed(7)
    assert [again.sample() for _ in range(20)] == [TOOLS.sample() for _ in range(20)]


def test_a_space_of_another_kind_is_refused():
    class Own(gymnasium.Space):
        pass

    with pytest.raises(TypeError, match="expected a Gymnasium space or a ToolSpace, got Own"):
        codec.space_to_proto(Own())
    with pytest.raises(TypeError, match="got Own"):
        codec.value_to_proto(1, Own())
    with pytest.raises(ValueError, match="expected a Graph over Box or Discrete, got Text"):
        codec.space_to_proto(spaces.Graph(spaces.Text(3), None))
    with pytest.raises(ValueError, match="expected a space of a known kind, got none"):
        codec.space_from_proto(space_pb2.Space())


@pytest.mark.parametrize(
    "message",
    [
        space_pb2.Space(discrete=space_pb2.DiscreteSpace(n=0)),
        space_pb2.Space(discrete=space_pb2.DiscreteSpace(n=1, dtype="float32")),
        space_pb2.Space(discrete=space_pb2.DiscreteSpace(n=300, dtype="int8")),
        space_pb2.Space(box=space_pb2.BoxSpace(dtype="object")),
        space_pb2.Space(box=space_pb2.BoxSpace(dtype="uint8", shape=[2**40])),
        space_pb2.Space(multi_binary=space_pb2.MultiBinarySpace(shape=[2**20, 2**20])),
        space_pb2.Space(tuple=space_pb2.TupleSpace(spaces=[space_pb2.Space()])),
        space_pb2.Space(text=space_pb2.TextSpace(min_length=3, max_length=2)),
        space_pb2.Space(
            tool=space_pb2.ToolSpace(tools=[space_pb2.ToolSpec(name="a", parameters_json="{")])
        ),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(message):
    with pytest.raises(ValueError, match=r"expected|Expect|positive|must"):
        codec.space_from_proto(message)


DICT = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))})


@pytest.mark.parametrize(
    ("space", "value", "read"),
    [
        (spaces.Discrete(3), 2, np.int64(2)),
        (spaces.Discrete(3), np.array(2, np.int8), np.int64(2)),
        (spaces.Discrete(3, dtype=np.uint8), 2, np.uint8(2)),
        (spaces.Box(0, 1, (2,)), [0, 1], np.array([0, 1], np.float32)),
        (spaces.Box(0, 1, (2,)), np.array([0.1, 1]), np.array([0.1, 1])),
        (spaces.Box(0, 1, ()), 0.5, np.array(0.5, np.float32)),
        (spaces.MultiBinary(2), [1, 0], np.array([1, 0], np.int8)),
        (spaces.MultiDiscrete([2, 2]), (1, 0), np.array([1, 0])),
        (spaces.Tuple([spaces.Discrete(2)]), [1], (np.int64(1),)),
        (spaces.Sequence(spaces.Discrete(2)), [], ()),
        (spaces.OneOf([spaces.Discrete(2)]), (0, 1), (np.int64(0), np.int64(1))),
    ],
)
def test_a_value_is_read_as_gymnasium_gives_it(space, value, read):
    again = codec.value_from_proto(over_the_wire(codec.value_to_proto(value, space)), space)
    assert data_equivalence(again, read, exact=True)


@pytest.mark.parametrize(
    ("space", "value", "error"),
    [
        (spaces.Discrete(3), 1.5, TypeError),
        (spaces.Discrete(3), "1", TypeError),
        (spaces.Box(0, 1, (2,)), "no", ValueError),
        (spaces.MultiBinary(2), [0.5, 1], ValueError),
        (spaces.MultiBinary(2), [0, 300], ValueError),
        (spaces.Text(3), 3, TypeError),
        (spaces.Tuple([spaces.Discrete(2)]), (1, 1), ValueError),
        (spaces.Tuple([spaces.Discrete(2)]), 1, TypeError),
        (DICT, {"a": 1}, ValueError),
        (DICT, [1, 2], TypeError),
        (spaces.OneOf([spaces.Discrete(2)]), (1, 1), ValueError),
    ],
)
def test_a_value_without_the_form_of_its_space_is_not_sent(space, value, error):
    with pytest.raises(error):
        codec.value_to_proto(value, space)


@LIMIT
@given(space=SPACES, other=SPACES, seed=st.integers(0, 2**31))
def test_a_value_of_another_space_is_read_or_refused_with_a_value_error(space, other, seed):
    other.seed(seed)
    message = codec.value_to_proto(other.sample(), other)
    with contextlib.suppress(ValueError):
        codec.value_from_proto(message, space)


def test_an_empty_message_is_refused():
    for read in (
        lambda: codec.value_from_proto(space_pb2.Value()),
        lambda: codec.value_from_proto(space_pb2.Value(), spaces.Discrete(2)),
        lambda: codec.observation_from_proto(episode_pb2.Observation()),
        lambda: codec.action_from_proto(episode_pb2.Action()),
    ):
        with pytest.raises(ValueError, match=r"expected .*, got (none|nothing)"):
            read()
