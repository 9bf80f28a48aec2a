"""Values of a space <-> `Value` messages.

One writer and one reader a kind of space. Used through `railgym.codec`, which documents the
rules.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from railgym.info_codec import read_array, read_graph, wire_text, write_graph
from railgym.space_codec import AnySpace
from railgym.spaces import ToolSpace
from railgym.tensors import Array, tensor_from_proto, write_tensor
from railgym.v1 import space_pb2 as pb


@singledispatch
def write_value(space: AnySpace, value: Any, into: pb.Value) -> None:
    """Writes a value of a space into an empty message.

    Raises:
        TypeError: The value, or the space, is of a type that cannot travel.
        ValueError: The value does not have the form of the space's values.
    """
    raise TypeError(f"expected a space whose values can travel, got {type(space).__name__}")


@singledispatch
def read_value(space: AnySpace, message: pb.Value) -> Any:
    """Reads a value of a space.

    Raises:
        ValueError: It does not have the form of the space's values.
        TypeError: The space is of a kind that the protocol does not have.
    """
    raise TypeError(f"expected a space whose values can travel, got {type(space).__name__}")


@write_value.register(spaces.Box)
@write_value.register(spaces.MultiBinary)
@write_value.register(spaces.MultiDiscrete)
def _(space: AnySpace, value: Any, into: pb.Value) -> None:
    if not isinstance(value, np.ndarray):
        value = _as_array(value, np.dtype(space.dtype))
    write_tensor(value, into.tensor)


@read_value.register(spaces.Box)
@read_value.register(spaces.MultiBinary)
@read_value.register(spaces.MultiDiscrete)
def _(space: AnySpace, message: pb.Value) -> Array:
    _expect(message, space, "tensor")
    return tensor_from_proto(message.tensor)


@write_value.register
def _(space: spaces.Discrete, value: Any, into: pb.Value) -> None:
    into.integer = operator.index(value)


@read_value.register
def _(space: spaces.Discrete, message: pb.Value) -> Any:
    if _expect(message, space, "integer", "tensor") == "tensor":
        return read_array(message.tensor)
    try:
        return space.dtype.type(message.integer)
    except OverflowError:
        raise ValueError(f"expected an integer of {space.dtype}, got {message.integer}") from None


@write_value.register
def _(space: spaces.Text, value: Any, into: pb.Value) -> None:
    into.text = wire_text(value)


@read_value.register
def _(space: spaces.Text, message: pb.Value) -> str:
    _expect(message, space, "text")
    return message.text


@write_value.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], value: Any, into: pb.Value) -> None:
    _same_length(space, value)
    into.list.SetInParent()
    for part, item in zip(space.spaces, value, strict=True):
        write_value(part, item, into.list.values.add())


@read_value.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], message: pb.Value) -> tuple[Any, ...]:
    _expect(message, space, "list")
    values = message.list.values
    _same_length(space, values)
    return tuple(read_value(part, item) for part, item in zip(space.spaces, values, strict=True))


@write_value.register
def _(space: spaces.Dict, value: Any, into: pb.Value) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a mapping for Dict, got {type(value).__name__}")
    _same_names(space, value)
    into.map.SetInParent()
    for name, part in space.spaces.items():
        write_value(part, value[name], into.map.fields[name])


@read_value.register
def _(space: spaces.Dict, message: pb.Value) -> dict[str, Any]:
    _expect(message, space, "map")
    fields = message.map.fields
    _same_names(space, fields)
    return {name: read_value(part, fields[name]) for name, part in space.spaces.items()}


@write_value.register
def _(space: spaces.Sequence, value: Any, into: pb.Value) -> None:
    if space.stack:
        return write_value(_stacked(space.feature_space), value, into)
    into.list.SetInParent()
    for item in value:
        write_value(space.feature_space, item, into.list.values.add())
    return None


@read_value.register
def _(space: spaces.Sequence, message: pb.Value) -> Any:
    if space.stack:
        return read_value(_stacked(space.feature_space), message)
    _expect(message, space, "list")
    return tuple(read_value(space.feature_space, item) for item in message.list.values)


@write_value.register(spaces.OneOf)
def _(space: spaces.OneOf[Any], value: Any, into: pb.Value) -> None:
    index, item = value
    into.one_of.index = operator.index(index)
    write_value(_choice(space, into.one_of.index), item, into.one_of.value)


@read_value.register(spaces.OneOf)
def _(space: spaces.OneOf[Any], message: pb.Value) -> tuple[Any, Any]:
    _expect(message, space, "one_of")
    index = message.one_of.index
    return np.int64(index), read_value(_choice(space, index), message.one_of.value)


@write_value.register
def _(space: spaces.Graph, value: Any, into: pb.Value) -> None:
    write_graph(spaces.GraphInstance(*value), into)


@read_value.register
def _(space: spaces.Graph, message: pb.Value) -> spaces.GraphInstance:
    _expect(message, space, "graph")
    return read_graph(message.graph)


@write_value.register
def _(space: ToolSpace, value: Any, into: pb.Value) -> None:
    raise TypeError(f"expected a ToolCall, Text, Final or NoAction, got {type(value).__name__}")


def _expect(message: pb.Value, space: AnySpace, *kinds: str) -> str:
    kind = message.WhichOneof("kind")
    if kind is None or kind not in kinds:
        wanted = " or ".join(kinds)
        raise ValueError(f"expected {wanted} for {type(space).__name__}, got {kind or 'nothing'}")
    return kind


def _same_length(space: spaces.Tuple[Any], given: Any) -> None:
    if len(given) != len(space.spaces):
        raise ValueError(f"expected {len(space.spaces)} values for Tuple, got {len(given)}")


def _same_names(space: spaces.Dict, given: Mapping[str, Any]) -> None:
    if given.keys() != space.spaces.keys():
        raise ValueError(f"expected the names {list(space.spaces)}, got {list(given)}"[:500])


def _choice(space: spaces.OneOf[Any], index: int) -> AnySpace:
    if index >= len(space.spaces):
        raise ValueError(f"expected an index below {len(space.spaces)}, got {index}")
    return space.spaces[index]


def _as_array(value: Any, dtype: np.dtype[Any]) -> Array:
    """Makes an array as Gymnasium does of a list, but loses no fraction on the way."""
    if np.asarray(value).dtype.kind in "fc" and dtype.kind in "iub":
        raise ValueError(f"expected values of {dtype}, got {value!r}"[:500])
    try:
        return np.asarray(value, dtype)
    except OverflowError:
        raise ValueError(f"expected values of {dtype}, got {value!r}"[:500]) from None


def _stacked(space: AnySpace) -> AnySpace:
    """The space of any number of values in one batch, as Gymnasium stacks them."""
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_stacked(part) for part in space.spaces])
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(name, _stacked(part)) for name, part in space.spaces.items()])
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        return batch_space(space, 1)
    return spaces.Sequence(space)
