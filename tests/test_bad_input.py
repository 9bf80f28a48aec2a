"""Actions that fit no space, and bytes that are no request, harm nobody."""

import contextlib
import socket

import grpc
import numpy as np
import pytest
import raw
from hypothesis import given, settings
from hypothesis import strategies as st

from env_server.env import Final, NoAction, ToolCall
from railgym import codec
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2, space_pb2


def tensor(dtype, shape, data):
    return space_pb2.Value(tensor=space_pb2.Tensor(dtype=dtype, shape=shape, data=data))


BAD_VALUES = {
    "a call": ToolCall("left", "{}"),
    "an answer": Final("1"),
    "nothing": episode_pb2.Action(),
    "an empty value": space_pb2.Value(),
    "too much": space_pb2.Value(integer=2),
    "below zero": space_pb2.Value(integer=-1),
    "a fraction": space_pb2.Value(number=0.5),
    "a flag": space_pb2.Value(flag=True),
    "text": space_pb2.Value(text="1"),
    "too few bytes": tensor("int64", [1], b"\0" * 7),
    "too many bytes": tensor("int64", [1], b"\0" * 9),
    "a shape beyond reason": tensor("int64", [2**40, 2**40], b""),
    "a shape that overflows": tensor("int64", [2**63, 2], b""),
    "an unknown type": tensor("complex128", [1], b"\0" * 16),
    "objects": tensor("object", [1], b"\0" * 8),
    "a row of integers": tensor("int64", [2], b"\0" * 16),
    "a list": space_pb2.Value(list=space_pb2.ValueList(values=[space_pb2.Value(integer=1)])),
}


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
def test_a_value_outside_of_the_space(envs, value):
    session_id = raw.playing(envs, "CartPole-v1")
    action = episode_pb2.Action(value=value) if isinstance(value, space_pb2.Value) else value
    code, why, metadata, _ = raw.refusal(envs.Step, raw.step_request(session_id, 1, action))
    assert (code, why) == ("INVALID_ARGUMENT", "BAD_ACTION")
    assert set(metadata) == {"expected", "got"}
    assert raw.where(envs, session_id).step == 0
    assert not raw.step(envs, session_id, 1, 1).terminated


def graph(**parts):
    return space_pb2.Value(
        one_of=space_pb2.OneOfValue(
            index=3, value=space_pb2.Value(graph=space_pb2.GraphValue(**parts))
        )
    )


NODES = tensor("float32", [2, 2], b"\0" * 16).tensor
SCALAR = tensor("float32", [], b"\0" * 4).tensor


@pytest.mark.parametrize(
    "value", [graph(), graph(nodes=SCALAR), graph(nodes=NODES, edges=SCALAR, edge_links=SCALAR)]
)
def test_a_graph_of_a_wrong_shape(envs, value):
    session_id = raw.playing(envs, "envs_for_tests:Mixed")
    request = raw.step_request(session_id, 1, episode_pb2.Action(value=value))
    assert raw.refusal(envs.Step, request).reason == "BAD_ACTION"
    assert raw.step(envs, session_id, 1, episode_pb2.Action(value=graph(nodes=NODES))).reward == 1


VALUES = st.recursive(
    st.one_of(
        st.builds(lambda n: space_pb2.Value(integer=n), st.integers(-(2**63), 2**63 - 1)),
        st.builds(lambda x: space_pb2.Value(number=x), st.floats()),
        st.builds(lambda text: space_pb2.Value(text=text), st.text(st.characters(codec="utf-8"))),
        st.builds(
            tensor,
            st.sampled_from(["float32", "float64", "int64", "bool", "uint8", ""]),
            st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=4),
            st.binary(max_size=32),
        ),
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda values: space_pb2.Value(list=space_pb2.ValueList(values=values)),
            st.lists(inner, max_size=3),
        ),
        st.builds(
            lambda fields: space_pb2.Value(map=space_pb2.ValueMap(fields=fields)),
            st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=3),
        ),
        st.builds(
            lambda index, value: space_pb2.Value(
                one_of=space_pb2.OneOfValue(index=index, value=value)
            ),
            st.integers(0, 2**32 - 1),
            inner,
        ),
        st.builds(
            lambda a, b: space_pb2.Value(
                graph=space_pb2.GraphValue(nodes=a.tensor, edges=b.tensor, edge_links=a.tensor)
            ),
            inner,
            inner,
        ),
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "envs_for_tests:Reach", "envs_for_tests:Mixed"])
@settings(deadline=None, max_examples=60)
@given(values=st.lists(VALUES, min_size=1, max_size=5))
def test_no_value_breaks_an_episode(envs, env_id, values):
    session_id = raw.playing(envs, env_id)
    for value in values:
        number = raw.where(envs, session_id).step + 1
        request = raw.step_request(session_id, number, episode_pb2.Action(value=value))
        call = envs.Step.future(request, timeout=raw.SECONDS)
        allowed = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
        assert call.code() in allowed, call.details()
        if call.code() is grpc.StatusCode.OK and call.result().transition.terminated:
            break
    raw.close(envs, session_id)


@pytest.mark.parametrize(
    "action",
    [
        episode_pb2.Action(),
        episode_pb2.Action(value=space_pb2.Value(integer=1)),
        NoAction("nonsense"),
        NoAction("tool_error"),
    ],
)
def test_an_action_that_no_tool_environment_takes(envs, action):
    session_id = raw.playing(envs)
    refusal = raw.refusal(envs.Step, raw.step_request(session_id, 1, action))
    assert refusal[:2] == ("INVALID_ARGUMENT", "BAD_ACTION")
    assert raw.where(envs, session_id).step == 0


def test_a_large_array_of_the_right_shape_is_an_action(envs):
    session_id = raw.playing(envs, "envs_for_tests:Reach")
    action = raw.message(np.zeros(2, np.float32), codec.space_from_proto(space(envs)))
    assert raw.step(envs, session_id, 1, action).reward == 0


def space(envs):
    found = envs.ListEnvs(pb.ListEnvsRequest()).envs
    return next(env.action_space for env in found if env.env_id == "envs_for_tests:Reach")


# Bytes that are no request


def test_a_message_that_is_too_large_has_a_status(envs):
    session_id = raw.playing(envs)
    action = ToolCall("type_letter", "x" * (17 * 1024 * 1024))
    refusal = raw.refusal(envs.Step, raw.step_request(session_id, 1, action))
    assert refusal.code == "RESOURCE_EXHAUSTED"
    assert "larger than max" in refusal.message
    assert raw.where(envs, session_id).step == 0


def test_bytes_that_are_no_message_have_a_status(channel, envs):
    rpc = channel.unary_unary("/railgym.v1.EnvService/CreateSession")
    with pytest.raises(grpc.RpcError) as caught:
        rpc(b"\xff\xff\xff", timeout=raw.SECONDS)
    assert caught.value.code() in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
    assert raw.create(envs)


def test_an_unknown_method_is_unimplemented(channel):
    rpc = channel.unary_unary("/railgym.v1.EnvService/MakeCoffee")
    with pytest.raises(grpc.RpcError) as caught:
        rpc(b"", timeout=raw.SECONDS)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_request_are_refused_on_a_stream(channel):
    rollout = channel.stream_stream("/railgym.v1.EnvService/Rollout")
    with pytest.raises(grpc.RpcError) as caught:
        list(rollout(iter([b"\xff" * 20]), timeout=raw.SECONDS))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "expected a request of Rollout" in caught.value.details()


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes(range(256)) * 400,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 5_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["nothing", "HTTP/1.1", "bytes", "a broken frame", "TLS"],
)
def test_garbage_at_the_port_harms_nobody(server, envs, garbage):
    session_id = raw.playing(envs)
    host, _, port = server.address.rpartition(":")
    for _ in range(5):
        with socket.create_connection((host, int(port)), timeout=raw.SECONDS) as connection:
            connection.settimeout(0.2)
            with contextlib.suppress(OSError):  # the server may hang up at any byte
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass
    assert raw.step(envs, session_id, 1, NoAction("empty_response")).info["fault"]
