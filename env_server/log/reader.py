"""Reads the records of a log, also while it grows, and names what cannot be read.

This module knows nothing of sessions and episodes: see `episodes.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from env_server.log import frames
from env_server.log.frames import Damage, Frame, Torn
from env_server.log.segments import SUFFIX, segments, sizes
from railgym.v1 import episode_pb2 as pb


class NotALog(ValueError):
    """The path is no log and no segment of one."""


class Record(NamedTuple):
    """One record of a log.

    Attributes:
        event: What it says.
        sha256: Over its bytes in the log; the session's next record holds the same.
        path: The segment that it stands in.
        offset: Where its frame begins.
    """

    event: pb.EpisodeEvent
    sha256: bytes
    path: Path
    offset: int

    @property
    def place(self) -> str:
        """FILE:OFFSET, for messages."""
        return f"{self.path}:{self.offset}"


def read(path: Path) -> Iterator[Record | Damage]:
    """Reads the records that a log holds at this moment.

    A torn tail is left out: its writer is still at it, or died within it.

    Args:
        path: A directory of segments, or one segment.

    Yields:
        Segment by segment in the order of their names, each in the order of its bytes.

    Raises:
        NotALog: There is nothing at the path, or something else than a log.
    """
    return _records(sizes(_segments_at(path)))


def record(frame: Frame, path: Path) -> Record | Damage:
    """Reads the payload of a frame: a record, or damage where it is no `EpisodeEvent`."""
    try:
        event = pb.EpisodeEvent.FromString(frame.payload)
    except DecodeError:
        length = len(frames.encode(frame.payload))
        return Damage(path, frame.offset, length, "the record is no EpisodeEvent")
    return Record(event, hashlib.sha256(frame.payload).digest(), path, frame.offset)


def _records(parts: list[tuple[Path, int]]) -> Iterator[Record | Damage]:
    for path, size in parts:
        for item in frames.scan(path, 0, size):
            if isinstance(item, Frame):
                yield record(item, path)
            elif not isinstance(item, Torn):
                yield item


def _segments_at(path: Path) -> list[Path]:
    if path.is_dir():
        found = segments(path)
        if not found:
            raise NotALog(f"expected a log at {path}, found a directory without {SUFFIX} files")
        return found
    if not path.is_file():
        raise NotALog(f"expected a log at {path}, found nothing")
    if path.suffix != SUFFIX:
        raise NotALog(f"expected a directory or a {SUFFIX} file, got {path}")
    return [path]
