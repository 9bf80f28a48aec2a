"""NumPy arrays <-> `Tensor` messages: C order, little-endian.

It knows nothing of spaces. An array that is read is a copy of one's own and may be written to.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from railgym.v1 import space_pb2 as pb

Array: TypeAlias = NDArray[Any]

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
"""Element types that can travel."""

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of one array: what one message can hold."""

MAX_DIMENSIONS = 32

_NAMES = {np.dtype(name).newbyteorder("<"): name for name in DTYPES}
_NATIVE = {name: np.dtype(name) for name in DTYPES}
_STORED = {name: dtype.newbyteorder("<") for name, dtype in _NATIVE.items()}
_STORED["bool"] = np.dtype("uint8")  # so that every byte but 0 reads as a proper True


def write_tensor(array: Array, into: pb.Tensor) -> None:
    """Writes an array into an empty message.

    Raises:
        ValueError: Its element type cannot travel.
    """
    name = _NAMES.get(array.dtype)
    if name is None:
        array = _little_endian(array)
        name = _NAMES[array.dtype]
    into.dtype = name
    into.shape.extend(array.shape)
    into.data = array.tobytes()


def tensor_to_proto(array: Array) -> pb.Tensor:
    """Writes an array.

    Raises:
        ValueError: Its element type cannot travel.
    """
    tensor = pb.Tensor()
    write_tensor(array, tensor)
    return tensor


def tensor_from_proto(tensor: pb.Tensor) -> Array:
    """Reads an array.

    Raises:
        ValueError: The element type is unknown, the shape is absurd, or the data does not fill it.
    """
    dtype = dtype_from_name(tensor.dtype)
    shape = shape_from_proto(tensor.shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    if len(tensor.data) != size:
        raise ValueError(
            f"expected {size:,} bytes for {tensor.dtype} of shape {shape}, got {len(tensor.data):,}"
        )
    return np.frombuffer(tensor.data, _STORED[tensor.dtype]).astype(dtype).reshape(shape)


def dtype_from_name(name: str) -> np.dtype[Any]:
    """Finds an element type.

    Raises:
        ValueError: It is not one that can travel.
    """
    dtype = _NATIVE.get(name)
    if dtype is None:
        raise ValueError(f"expected an element type of {', '.join(DTYPES)}; got {name[:40]!r}")
    return dtype


def shape_from_proto(shape: Any, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Reads a shape, without trust in its size.

    Raises:
        ValueError: It has too many dimensions or elements to have come in a message.
    """
    sizes = tuple(shape)
    if len(sizes) > MAX_DIMENSIONS:
        raise ValueError(f"expected at most {MAX_DIMENSIONS} dimensions, got {len(sizes)}")
    size = math.prod(max(n, 1) for n in sizes) * dtype.itemsize
    if size > MAX_BYTES:
        raise ValueError(f"expected a shape of at most {MAX_BYTES:,} bytes, got {sizes}")
    return sizes


def _little_endian(array: Array) -> Array:
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _NAMES:
        raise ValueError(
            f"expected an element type of {', '.join(DTYPES)}; got {str(dtype)[:40]!r}"
        )
    return array.astype(dtype)
