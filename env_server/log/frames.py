"""Frames: how a payload lies in a segment file, and how a damaged file is read around its damage.

A frame is 12 bytes and the payload: the magic, then two little-endian u32: the payload's length,
and the CRC-32 over those four length bytes and the payload. This module knows nothing of what a
payload means.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

MAGIC = b"\xffRGL"
"""Begins each frame. 0xFF occurs in no UTF-8, so that no text in a payload can hold it."""

MAX_PAYLOAD = 16 * 1024 * 1024
"""Bytes of one payload."""

_HEADER = struct.Struct("<4sII")
HEADER_SIZE = _HEADER.size
_BLOCK = 1024 * 1024


class Frame(NamedTuple):
    """A whole frame.

    Attributes:
        offset: Of its first byte in the file.
        payload: At most 16 MiB.
    """

    offset: int
    payload: bytes


class Damage(NamedTuple):
    """Bytes of a segment that cannot be read, up to the next good frame or the end.

    Attributes:
        path: The segment.
        offset: Of the first bad byte: where a frame had to begin.
        length: In bytes.
        reason: What is wrong with them.
    """

    path: Path
    offset: int
    length: int
    reason: str

    @property
    def place(self) -> str:
        """FILE:OFFSET, for messages."""
        return f"{self.path}:{self.offset}"


class Torn(NamedTuple):
    """The last bytes of a segment are the beginning of a frame.

    Its writer died within a write, or is still at it.

    Attributes:
        path: The segment.
        offset: Where the frame begins.
        length: Bytes that there are of it.
    """

    path: Path
    offset: int
    length: int


class BadFrame(ValueError):
    """No good frame begins at this place."""


class _Short(Exception):
    """The bytes end within the frame that begins here."""


def encode(payload: bytes) -> bytes:
    """Puts a payload into a frame.

    Raises:
        ValueError: The payload is larger than 16 MiB.
    """
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(
            f"expected a payload of at most {MAX_PAYLOAD:,} bytes, got {len(payload):,}"
        )
    return _HEADER.pack(MAGIC, len(payload), _checksum(payload)) + payload


def read_at(file: BinaryIO, offset: int) -> bytes:
    """Reads the payload of the frame that begins at `offset`.

    Raises:
        BadFrame: There is no whole frame.
    """
    file.seek(offset)
    header = file.read(HEADER_SIZE)
    length = _HEADER.unpack(header)[1] if len(header) == HEADER_SIZE else 0
    try:
        return _payload(header + file.read(min(length, MAX_PAYLOAD)), 0)
    except _Short:
        raise BadFrame("the file ends within the frame") from None


def scan(path: Path, start: int = 0, end: int | None = None) -> Iterator[Frame | Damage | Torn]:
    """Reads a segment from one place to another, in blocks.

    Args:
        path: The segment.
        start: Where a frame begins.
        end: Where to stop; None is the size that the file has now. Bytes that are written while
            the scan runs are not read.

    Yields:
        Frames and damage in the order of the file, at most one `Torn`, as the last.
    """
    with path.open("rb", buffering=0) as file:
        left = (path.stat().st_size if end is None else end) - start
        file.seek(start)
        scanner = _Scanner(path, start)
        while block := file.read(min(_BLOCK, left)):
            left -= len(block)
            yield from scanner.feed(block)
        yield from scanner.finish()


def torn_tail(path: Path) -> Torn | None:
    """Finds what is torn at the end of a segment, without reading all of it."""
    size, window = path.stat().st_size, _BLOCK
    while True:
        start = max(0, size - window)
        found = list(scan(path, start, size))
        if start == 0 or any(isinstance(item, Frame) for item in found):
            return found[-1] if found and isinstance(found[-1], Torn) else None
        window *= 16


class _Scanner:
    """Splits bytes, as they come, into frames and what is not one."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self._rest = b""
        self._offset = offset  # of the first byte of the rest
        self._bad: tuple[int, str] | None = None  # where damage began, and what is wrong

    def feed(self, block: bytes) -> Iterator[Frame | Damage]:
        """Yields what is certain with these bytes."""
        data, position = self._rest + block, 0
        try:
            while True:
                try:
                    payload = _payload(data, position)
                except BadFrame as e:
                    self._bad = self._bad or (self._offset + position, str(e))
                    position = _next_magic(data, position + 1)
                    continue
                if self._bad:
                    yield self._damage(self._offset + position)
                yield Frame(self._offset + position, payload)
                position += HEADER_SIZE + len(payload)
        except _Short:
            self._rest, self._offset = data[position:], self._offset + position

    def finish(self) -> Iterator[Frame | Damage | Torn]:
        """Yields what is left when no more bytes come."""
        while (good := _next_frame(self._rest)) is not None:
            # A damaged length reaches beyond the end, with good frames within its reach.
            self._bad = self._bad or (self._offset, "the length reaches beyond the end of the file")
            rest, self._rest, self._offset = self._rest[good:], b"", self._offset + good
            yield from self.feed(rest)
        end = self._offset + len(self._rest)
        if _only_length_is_bad(self._rest):
            self._bad = self._bad or (self._offset, "the length does not match the checksum")
            self._rest, self._offset = b"", end
        if self._bad:
            yield self._damage(self._offset)
        if self._rest:
            yield Torn(self._path, self._offset, len(self._rest))

    def _damage(self, end: int) -> Damage:
        assert self._bad is not None
        (offset, reason), self._bad = self._bad, None
        return Damage(self._path, offset, end - offset, reason)


def _payload(data: bytes, position: int) -> bytes:
    """Takes the payload out of the frame at `position`. Raises BadFrame or _Short."""
    if len(data) - position < HEADER_SIZE:
        if MAGIC.startswith(data[position : position + len(MAGIC)]):
            raise _Short
        raise BadFrame("no frame begins here")
    magic, length, checksum = _HEADER.unpack_from(data, position)
    if magic != MAGIC:
        raise BadFrame("no frame begins here")
    if length > MAX_PAYLOAD:
        raise BadFrame(f"the length is {length:,} bytes, more than {MAX_PAYLOAD:,}")
    begin = position + HEADER_SIZE
    payload = data[begin : begin + length]
    if len(payload) < length:
        raise _Short
    if _checksum(payload) != checksum:
        raise BadFrame("the checksum does not match")
    return payload


def _checksum(payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(len(payload).to_bytes(4, "little")))


def _next_magic(data: bytes, position: int) -> int:
    """Where the next frame may begin; the last bytes may be the first ones of a magic."""
    found = data.find(MAGIC, position)
    return found if found >= 0 else max(position, len(data) - len(MAGIC) + 1)


def _next_frame(data: bytes) -> int | None:
    """Where the first good frame after the beginning of `data` begins."""
    position = data.find(MAGIC, 1)
    while position >= 0:
        try:
            _payload(data, position)
        except (BadFrame, _Short):
            position = data.find(MAGIC, position + 1)
        else:
            return position
    return None


def _only_length_is_bad(data: bytes) -> bool:
    """Whether `data` is one whole frame but for its length: not torn, but damaged."""
    if len(data) < HEADER_SIZE:
        return False
    checksum: int = _HEADER.unpack_from(data)[2]
    return _checksum(data[HEADER_SIZE:]) == checksum
