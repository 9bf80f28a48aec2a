"""Gymnasium spaces <-> `Space` messages.

A space that is read equals the one that was written and samples in the same order; its sampler
has a seed of its own. A kind of space that is unknown here is an error, not a guess.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from railgym.spaces import ToolSpace, ToolSpec
from railgym.tensors import (
    Array,
    dtype_from_name,
    shape_from_proto,
    tensor_from_proto,
    tensor_to_proto,
)
from railgym.v1 import space_pb2 as pb

AnySpace: TypeAlias = spaces.Space[Any]


@singledispatch
def space_to_proto(space: AnySpace) -> pb.Space:
    """Writes a space.

    Raises:
        ValueError: A part of it cannot travel.
        TypeError: It is of a kind that the protocol does not have.
    """
    raise TypeError(f"expected a Gymnasium space or a ToolSpace, got {type(space).__name__}")


@space_to_proto.register
def _(space: spaces.Box) -> pb.Space:
    return pb.Space(
        box=pb.BoxSpace(
            dtype=space.dtype.name,
            shape=space.shape,
            low=tensor_to_proto(_bound(space.low, space.bounded_below, -np.inf)),
            high=tensor_to_proto(_bound(space.high, space.bounded_above, np.inf)),
        )
    )


@space_to_proto.register
def _(space: spaces.Discrete) -> pb.Space:
    message = pb.DiscreteSpace(n=int(space.n), start=int(space.start), dtype=space.dtype.name)
    return pb.Space(discrete=message)


@space_to_proto.register
def _(space: spaces.MultiBinary) -> pb.Space:
    return pb.Space(multi_binary=pb.MultiBinarySpace(shape=space.shape))


@space_to_proto.register
def _(space: spaces.MultiDiscrete) -> pb.Space:
    nvec, start = tensor_to_proto(space.nvec), tensor_to_proto(space.start)
    return pb.Space(multi_discrete=pb.MultiDiscreteSpace(nvec=nvec, start=start))


@space_to_proto.register
def _(space: spaces.Text) -> pb.Space:
    return pb.Space(
        text=pb.TextSpace(
            min_length=space.min_length, max_length=space.max_length, charset=space.characters
        )
    )


@space_to_proto.register(spaces.Tuple)
def _(space: spaces.Tuple[Any]) -> pb.Space:
    return pb.Space(tuple=pb.TupleSpace(spaces=[space_to_proto(part) for part in space.spaces]))


@space_to_proto.register
def _(space: spaces.Dict) -> pb.Space:
    entries = [
        pb.DictSpace.Entry(name=name, space=space_to_proto(part))
        for name, part in space.spaces.items()
    ]
    return pb.Space(dict=pb.DictSpace(entries=entries))


@space_to_proto.register
def _(space: spaces.Sequence) -> pb.Space:
    message = pb.SequenceSpace(space=space_to_proto(space.feature_space), stack=space.stack)
    return pb.Space(sequence=message)


@space_to_proto.register(spaces.OneOf)
def _(space: spaces.OneOf[Any]) -> pb.Space:
    return pb.Space(one_of=pb.OneOfSpace(spaces=[space_to_proto(part) for part in space.spaces]))


@space_to_proto.register
def _(space: spaces.Graph) -> pb.Space:
    _check_graph(space.node_space, space.edge_space)
    edges = None if space.edge_space is None else space_to_proto(space.edge_space)
    message = pb.GraphSpace(node_space=space_to_proto(space.node_space), edge_space=edges)
    return pb.Space(graph=message)


@space_to_proto.register
def _(space: ToolSpace) -> pb.Space:
    tools = [
        pb.ToolSpec(
            name=tool.name,
            description=tool.description,
            parameters_json=json.dumps(tool.parameters, separators=(",", ":"), allow_nan=False),
        )
        for tool in space.tools
    ]
    return pb.Space(tool=pb.ToolSpace(tools=tools))


def space_from_proto(message: pb.Space) -> AnySpace:
    """Reads a space.

    Raises:
        ValueError: It is of no known kind, or a part of it makes no sense.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise ValueError("expected a space of a known kind, got none")
    try:
        return _READERS[kind](getattr(message, kind))
    except (TypeError, OverflowError, AssertionError) as e:  # Gymnasium's, by its version
        raise ValueError(f"expected a proper {kind} space: {e}") from e


def _read_box(message: pb.BoxSpace) -> AnySpace:
    dtype = dtype_from_name(message.dtype)
    shape = shape_from_proto(message.shape, dtype)
    low, high = _read_bound(message.low), _read_bound(message.high)
    return spaces.Box(low, high, shape, dtype.type)


def _read_discrete(message: pb.DiscreteSpace) -> AnySpace:
    dtype = dtype_from_name(message.dtype or "int64")
    return spaces.Discrete(message.n, start=message.start, dtype=dtype.type)


def _read_multi_binary(message: pb.MultiBinarySpace) -> AnySpace:
    shape = shape_from_proto(message.shape, np.dtype(np.int8))
    return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)


def _read_multi_discrete(message: pb.MultiDiscreteSpace) -> AnySpace:
    nvec, start = tensor_from_proto(message.nvec), tensor_from_proto(message.start)
    return spaces.MultiDiscrete(nvec, dtype=nvec.dtype.type, start=start)


def _read_text(message: pb.TextSpace) -> AnySpace:
    return spaces.Text(message.max_length, min_length=message.min_length, charset=message.charset)


def _read_tuple(message: pb.TupleSpace) -> AnySpace:
    return spaces.Tuple([space_from_proto(part) for part in message.spaces])


def _read_dict(message: pb.DictSpace) -> AnySpace:
    return spaces.Dict([(entry.name, space_from_proto(entry.space)) for entry in message.entries])


def _read_sequence(message: pb.SequenceSpace) -> AnySpace:
    return spaces.Sequence(space_from_proto(message.space), stack=message.stack)


def _read_one_of(message: pb.OneOfSpace) -> AnySpace:
    return spaces.OneOf([space_from_proto(part) for part in message.spaces])


def _read_graph(message: pb.GraphSpace) -> AnySpace:
    nodes = space_from_proto(message.node_space)
    edges = space_from_proto(message.edge_space) if message.HasField("edge_space") else None
    _check_graph(nodes, edges)
    return spaces.Graph(nodes, edges)


def _check_graph(nodes: AnySpace, edges: AnySpace | None) -> None:
    """Refuses what Gymnasium takes for the parts of a Graph, and cannot sample."""
    for part in (nodes, edges):
        if not (part is None or isinstance(part, spaces.Box | spaces.Discrete)):
            raise ValueError(f"expected a Graph over Box or Discrete, got {type(part).__name__}")


def _read_tools(message: pb.ToolSpace) -> AnySpace:
    return ToolSpace(
        [
            ToolSpec(tool.name, tool.description, json.loads(tool.parameters_json))
            for tool in message.tools
        ]
    )


_READERS: dict[str, Callable[[Any], AnySpace]] = {
    "box": _read_box,
    "discrete": _read_discrete,
    "multi_binary": _read_multi_binary,
    "multi_discrete": _read_multi_discrete,
    "text": _read_text,
    "tuple": _read_tuple,
    "dict": _read_dict,
    "sequence": _read_sequence,
    "one_of": _read_one_of,
    "graph": _read_graph,
    "tool": _read_tools,
}


def _bound(values: Array, bounded: Array, infinity: float) -> Array:
    """One bound of a Box: a scalar where it is the same for all, infinite where there is none.

    Integer types have no infinity, so there the Box itself holds the outermost integer.
    """
    if not bounded.any() and bounded.size:
        return np.array(infinity)
    first: Array = values.ravel()[:1]
    return first.reshape(()) if first.size and (values == first).all() else values


def _read_bound(message: pb.Tensor) -> Any:
    values = tensor_from_proto(message)
    if values.shape:
        return values
    return int(values) if values.dtype.kind == "b" else values.item()
