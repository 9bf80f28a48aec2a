"""Arrays, infos, actions and ends survive the wire, or change as documented."""

import json

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import railgym
from railgym import codec, tensors
from railgym.v1 import episode_pb2, space_pb2

LIMIT = settings(deadline=None, max_examples=60)


def over_the_wire(message):
    return type(message).FromString(message.SerializeToString())


ARRAYS = hnp.arrays(
    st.sampled_from(tensors.DTYPES), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)
)


@LIMIT
@given(array=ARRAYS)
def test_an_array_survives_the_wire(array):
    again = tensors.tensor_from_proto(over_the_wire(tensors.tensor_to_proto(array)))
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again, array)
    assert again.flags.writeable
    assert again.flags.owndata or again.base.flags.owndata


@pytest.mark.parametrize("dtype", [">i4", ">f8", ">u2", "<f4"])
def test_any_byte_order_and_layout_travels(dtype):
    array = np.arange(24, dtype=dtype).reshape(2, 3, 4).transpose(2, 0, 1)[::2]
    tensor = tensors.tensor_to_proto(array)
    assert tensor.data == array.astype(array.dtype.newbyteorder("<")).tobytes("C")
    np.testing.assert_array_equal(tensors.tensor_from_proto(tensor), array)


@pytest.mark.parametrize(
    ("tensor", "error"),
    [
        (space_pb2.Tensor(dtype="float32", shape=[2], data=b"1234"), "expected 8 bytes.*got 4"),
        (space_pb2.Tensor(dtype="float32", shape=[], data=b""), "expected 4 bytes.*got 0"),
        (space_pb2.Tensor(dtype="float99", shape=[1], data=b"1234"), "got 'float99'"),
        (space_pb2.Tensor(dtype="object", shape=[1], data=b"12345678"), "got 'object'"),
        (space_pb2.Tensor(dtype="", shape=[1], data=b"1234"), "element type.*got ''"),
        (space_pb2.Tensor(dtype="int8", shape=[2**63, 2**63], data=b""), "expected a shape"),
        (space_pb2.Tensor(dtype="int8", shape=[0, 2**63], data=b""), "expected a shape"),
        (
            space_pb2.Tensor(dtype="int8", shape=[1] * 33, data=b"1"),
            "at most 32 dimensions, got 33",
        ),
    ],
)
def test_a_bad_tensor_is_refused(tensor, error):
    with pytest.raises(ValueError, match=error):
        tensors.tensor_from_proto(tensor)


def test_a_flag_in_a_tensor_is_0_or_1():
    tensor = space_pb2.Tensor(dtype="bool", shape=[3], data=b"\x00\x01\x07")
    assert tensors.tensor_from_proto(tensor).view(np.uint8).tolist() == [0, 1, 1]


INT64 = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.sampled_from(tensors.DTYPES).flatmap(
    lambda dtype: hnp.from_dtype(np.dtype(dtype), allow_nan=False)
)
INFO_LEAVES = st.one_of(
    st.none(), st.booleans(), INT64, st.floats(allow_nan=False), st.text(), SCALARS
)
INFO_VALUES = st.recursive(
    INFO_LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@LIMIT
@given(info=st.dictionaries(st.text(max_size=5), INFO_VALUES, max_size=4))
def test_an_info_survives_the_wire(info):
    transition = railgym.Transition("{}", 0.5, False, True, info)
    again = codec.transition_from_proto(over_the_wire(codec.transition_to_proto(transition)))
    assert data_equivalence(again, transition, exact=True)
    message = episode_pb2.Transition(info=codec.info_to_proto(info))
    assert data_equivalence(codec.info_from_proto(over_the_wire(message).info), info, exact=True)


@pytest.mark.parametrize(
    ("given_value", "read"),
    [
        ((1, "a"), [1, "a"]),
        (2**63, str(2**63)),
        (-(10**30), "-1" + "0" * 30),
        ({1: "x", None: "y"}, {"1": "x", "None": "y"}),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([None, {"a": 1}], dtype=object), [None, {"a": 1}]),
        (np.str_("a"), "a"),
        ("a\ud800b", "a\\ud800b"),
        ({"\udfff": 1}, {"\\udfff": 1}),
    ],
)
def test_what_an_info_cannot_keep_changes_as_documented(given_value, read):
    again = codec.value_from_proto(over_the_wire(codec.value_to_proto(given_value)))
    assert data_equivalence(again, read, exact=True)


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object(), 1j, [print]])
def test_what_no_info_can_hold_is_refused(value):
    with pytest.raises(TypeError, match=r"expected None, a bool, a number.* got"):
        codec.value_to_proto(value)


@pytest.mark.parametrize("array", [np.zeros(2, complex), np.zeros(1, "M8[s]"), np.zeros(1, "S3")])
def test_an_array_of_another_type_is_refused(array):
    with pytest.raises(ValueError, match=r"expected an element type of bool, .*; got"):
        codec.value_to_proto(array)


ACTIONS = st.one_of(
    st.builds(railgym.ToolCall, st.text(), st.text()),
    st.builds(railgym.Text, st.text()),
    st.builds(railgym.Final, st.text()),
    st.builds(railgym.NoAction, st.text(), st.text()),
    INT64.map(railgym.Plain),
)


@LIMIT
@given(action=ACTIONS)
def test_an_action_survives_the_wire(action):
    again = codec.action_from_proto(over_the_wire(codec.action_to_proto(action)))
    assert again == action
    assert type(again) is type(action)


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)


@LIMIT
@given(key=ANY_TEXT, value=ANY_TEXT)
def test_lone_surrogates_within_json_text_mean_the_same_after_the_wire(key, value):
    raw = json.dumps({key: value}, ensure_ascii=False)
    call = over_the_wire(codec.action_to_proto(railgym.ToolCall("a\ud800", raw)))
    assert call.tool_call.name == "a\\ud800"
    sent, meant = json.loads(call.tool_call.arguments_json), json.loads(raw)
    assert json.dumps(sent) == json.dumps(meant)


def test_what_is_no_action_is_refused():
    with pytest.raises(TypeError, match="expected an action of railgym, got int"):
        codec.action_to_proto(3)
    with pytest.raises(TypeError, match="expected a string, got int"):
        codec.action_to_proto(railgym.Final(42))


@pytest.mark.parametrize("reason", [None, *episode_pb2.EndReason.values()[1:]])
def test_every_end_reason_has_a_word(reason):
    word = codec.end_reason_from_proto(reason or 0)
    assert codec.end_reason_to_proto(word) == (reason or 0)


def test_the_end_reason_of_a_newer_server_is_a_number():
    assert codec.end_reason_from_proto(99) == "99"
