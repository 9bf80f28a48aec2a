"""Segments: the files of a log, their names and their order.

A segment's name is a number of eight digits, a dash, letters that no other writer draws, and
`.rgl`. A new segment takes the number after the highest, so that the order of names is the order
in which segments were begun. This module knows nothing of what stands in them.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from pathlib import Path

SUFFIX = ".rgl"

_NUMBER = re.compile(r"\d{8}(?=-)")


def segments(directory: Path) -> list[Path]:
    """The segments of a log in the order of their names."""
    return sorted(directory.glob(f"*{SUFFIX}"))


def sizes(paths: list[Path]) -> list[tuple[Path, int]]:
    """The segments with their sizes in bytes, as of one moment.

    The last one is measured first. A session only ever moves on to a later segment, so whatever a
    record within these sizes follows is within them too, even while the log grows.
    """
    return [(path, path.stat().st_size) for path in reversed(paths)][::-1]


def next_path(directory: Path) -> Path:
    """A name for a new segment: after all that there are, and drawn by nobody else."""
    numbers = (_NUMBER.match(path.name) for path in segments(directory))
    last = max((int(number[0]) for number in numbers if number), default=0)
    return directory / f"{last + 1:08}-{secrets.token_hex(4)}{SUFFIX}"


def lock(fd: int) -> bool:
    """Takes a dead writer's segment, for as long as it is open here; False: it is taken."""
    return _flock(fd, fcntl.LOCK_EX)


def is_live(segment: Path) -> bool:
    """Whether a living writer holds the segment, or one that opens the log mends it just now."""
    fd = os.open(segment, os.O_RDONLY)
    try:
        return not _flock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _flock(fd: int, mode: int) -> bool:
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
