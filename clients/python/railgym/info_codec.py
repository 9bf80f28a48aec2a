"""Values of an info <-> `Value` messages: each keeps its own kind, for no space says what it is.

Used through `railgym.codec`, which documents the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance

from railgym.tensors import tensor_from_proto, write_tensor
from railgym.v1 import space_pb2 as pb

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def wire_text(text: str) -> str:
    r"""Escapes lone surrogates, which no message can hold, as `\udXXX`.

    Raises:
        TypeError: It is no string.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a string, got {type(text).__name__}")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def write_info_value(value: Any, into: pb.Value) -> None:
    """Writes a value without a space into an empty message.

    Raises:
        TypeError: It is of a type that cannot travel.
        ValueError: It is an array whose element type cannot travel.
    """
    write = _WRITERS.get(type(value))
    if write is None:
        bases = (base for base in _WRITERS if isinstance(value, base))
        write = _WRITERS[next(bases, object)]
    write(value, into)


def _write_null(value: None, into: pb.Value) -> None:
    into.null.SetInParent()


def _write_flag(value: bool, into: pb.Value) -> None:
    into.flag = value


def _write_int(value: int, into: pb.Value) -> None:
    if INT64_MIN <= value <= INT64_MAX:
        into.integer = value
    else:
        into.text = str(int(value))


def _write_float(value: float, into: pb.Value) -> None:
    into.number = value


def _write_str(value: str, into: pb.Value) -> None:
    into.text = wire_text(value)


def _write_array(value: Any, into: pb.Value) -> None:
    array = np.asarray(value)
    if array.dtype.kind in "OUT":
        write_info_value(array.tolist(), into)
    else:
        write_tensor(array, into.tensor)


def _write_list(value: Any, into: pb.Value) -> None:
    into.list.SetInParent()
    for item in value:
        write_info_value(item, into.list.values.add())


def _write_map(value: Mapping[Any, Any], into: pb.Value) -> None:
    into.map.SetInParent()
    for key, item in value.items():
        write_info_value(item, into.map.fields[wire_text(str(key))])


def write_graph(value: GraphInstance, into: pb.Value) -> None:
    """Writes a graph, whose parts are arrays or None."""
    write_tensor(np.asarray(value.nodes), into.graph.nodes)
    if value.edges is not None:
        write_tensor(np.asarray(value.edges), into.graph.edges)
    if value.edge_links is not None:
        write_tensor(np.asarray(value.edge_links), into.graph.edge_links)


def _refuse(value: object, into: pb.Value) -> None:
    raise TypeError(
        "expected None, a bool, a number, a string, a list, a mapping or an array; "
        f"got {type(value).__name__}"
    )


# In this order for subclasses: np.float64 is a float, a bool an int, a GraphInstance a tuple.
_WRITERS: dict[type, Callable[[Any, pb.Value], None]] = {
    type(None): _write_null,
    np.ndarray: _write_array,
    np.generic: _write_array,
    bool: _write_flag,
    int: _write_int,
    float: _write_float,
    str: _write_str,
    GraphInstance: write_graph,
    list: _write_list,
    tuple: _write_list,
    Mapping: _write_map,
    object: _refuse,
}


def read_info_value(message: pb.Value) -> Any:
    """Reads a value without a space.

    Raises:
        ValueError: It is of no known kind, or holds a bad tensor.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise ValueError("expected a value of a known kind, got none")
    read = _READERS.get(kind)
    return getattr(message, kind) if read is None else read(getattr(message, kind))


def read_array(message: pb.Tensor) -> Any:
    """Reads an array, or a NumPy scalar where it has no dimension."""
    return tensor_from_proto(message)[()]


def _read_list(message: pb.ValueList) -> list[Any]:
    return [read_info_value(item) for item in message.values]


def _read_map(message: pb.ValueMap) -> dict[str, Any]:
    return {key: read_info_value(item) for key, item in message.fields.items()}


def _read_one_of(message: pb.OneOfValue) -> tuple[Any, Any]:
    return np.int64(message.index), read_info_value(message.value)


def read_graph(message: pb.GraphValue) -> GraphInstance:
    """Reads a graph."""
    has = message.HasField
    return GraphInstance(
        tensor_from_proto(message.nodes),
        tensor_from_proto(message.edges) if has("edges") else None,
        tensor_from_proto(message.edge_links) if has("edge_links") else None,
    )


_READERS: dict[str, Callable[[Any], Any]] = {
    "tensor": read_array,
    "null": lambda _: None,
    "list": _read_list,
    "map": _read_map,
    "one_of": _read_one_of,
    "graph": read_graph,
}
