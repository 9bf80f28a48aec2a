"""The writer of a log: appends to a segment of its own, and mends what a dead writer left.

What `append` wrote outlives the process; what `sync` flushed outlives the machine. Every segment
that it began or took over stays locked while it lives, so that nobody else goes on with what stands
there. This module knows nothing of what a payload means.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from env_server.log import frames
from env_server.log.frames import Torn
from env_server.log.segments import lock, next_path, segments

SEGMENT_BYTES = 256 * 1024 * 1024
"""A segment that has come to this size is followed by another."""


class LogUnwritable(OSError):
    """The log cannot be written: `errno`, `strerror` and `filename` say why and where."""


class LogWriter:
    """Appends payloads to a log. One for each process; any of its threads may call it.

    Attributes:
        path: The segment that is being written.
        cut: The torn tails that were cut off when the log was opened, for the server to report.
    """

    def __init__(
        self,
        directory: Path,
        segment_bytes: int = SEGMENT_BYTES,
        announce: Callable[[Path], None] | None = None,
    ) -> None:
        """Opens a log, or begins one: cuts the torn tails of dead writers, and begins a segment.

        Args:
            directory: The log. Made where it does not exist.
            segment_bytes: Size at which a new segment begins.
            announce: Told of a segment before it is begun, and when it is taken over. An OSError
                that it raises is one of the log. None: nobody is told.

        Raises:
            LogUnwritable: The directory cannot be written.
        """
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._announce = announce or (lambda segment: None)
        self._lock = threading.RLock()
        self._held: dict[Path, int] = {}  # open files of the segments that are locked
        self.path = directory
        self._fd = -1
        self._size = self._synced = 0  # bytes of the segment
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.cut = [torn for path in segments(directory) if (torn := _cut_torn_tail(path))]
            self._begin_segment()
        except OSError as e:
            raise _unwritable(e, directory) from e

    def append(self, payloads: Sequence[bytes]) -> int:
        """Writes payloads, one frame each: all of them, or none.

        Args:
            payloads: Serialised `EpisodeEvent`s of at most 16 MiB each.

        Returns:
            How many bytes were written.

        Raises:
            LogUnwritable: They could not be written, for instance because the disk is full. The
                log is as it was before.
            ValueError: A payload is too large.
        """
        data = b"".join([frames.encode(payload) for payload in payloads])
        with self._lock:
            self._check_open()
            try:
                if self._size and self._size + len(data) > self._segment_bytes:
                    self._begin_segment()
                self._write(data)
            except OSError as e:
                raise _unwritable(e, self.path) from e
            self._size += len(data)
        return len(data)

    def continue_after(self, segment: Path) -> None:
        """Makes sure that what is appended from now on is read after what stands in `segment`.

        To be called before a session goes on whose latest record another writer wrote.

        Raises:
            LogUnwritable: A new segment was needed and could not be begun.
        """
        with self._lock:
            self._check_open()
            if segment.name <= self.path.name:
                return
            try:
                self._begin_segment()
            except OSError as e:
                raise _unwritable(e, self._directory) from e

    @property
    def given_up(self) -> bool:
        """Whether nothing more is written: closed, or given up after an error of the disk."""
        return self._fd < 0

    def holds(self, segment: Path) -> bool:
        """Whether this writer began the segment or has taken it over."""
        return segment in self._held

    def take_over(self, segment: Path) -> bool:
        """Takes a dead writer's segment, cuts its torn tail, and keeps it from everybody else.

        Returns:
            False: another writer holds it.

        Raises:
            LogUnwritable: The segment cannot be opened or mended.
        """
        if self.holds(segment):
            return True
        try:
            fd = os.open(segment, os.O_RDONLY)
            try:
                taken = lock(fd)
                if taken:
                    _mend(segment)
                    self._announce(segment)
                    self._hold(segment, os.dup(fd))  # a lock lasts as long as any copy is open
            finally:
                os.close(fd)
        except OSError as e:
            raise _unwritable(e, segment) from e
        return taken

    def sync(self) -> None:
        """Flushes what was appended to the disk. Costs nothing where nothing was.

        Raises:
            LogUnwritable: The disk did not take it.
        """
        with self._lock:
            if self._size == self._synced:
                return
            self._check_open()
            path, size, fd = self.path, self._size, os.dup(self._fd)
        try:
            self._flush(fd)  # outside the lock, so that nobody waits for the disk to append
        except OSError as e:
            raise _unwritable(e, path) from e
        finally:
            os.close(fd)
        with self._lock:
            if self.path == path:
                self._synced = size

    def close(self) -> None:
        """Flushes and closes the segment. Closing twice is fine."""
        with self._lock:
            if self._fd >= 0:
                self.sync()
                self._give_up()

    def __enter__(self) -> Self:
        """Gives the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    def _flush(self, fd: int) -> None:
        """Flushes an open segment. Where that fails, this writer writes nothing more."""
        try:
            os.fsync(fd)
        except OSError:
            with self._lock:
                self._give_up()  # a second fsync would succeed without the lost bytes
            raise

    def _begin_segment(self) -> None:
        if self._fd >= 0:
            self._flush(self._fd)
        path = next_path(self._directory)
        self._announce(path)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # waits for those who look whether its writer lives
            _flush_names(self._directory)
        except OSError:
            os.close(fd)
            raise
        self._held[path] = fd
        self._fd, self.path, self._size, self._synced = fd, path, 0, 0

    def _check_open(self) -> None:
        if self._fd < 0:
            reason = "the log cannot be written: closed, or given up after an error of the disk"
            raise LogUnwritable(errno.EBADF, reason, str(self.path))

    def _hold(self, segment: Path, fd: int) -> None:
        with self._lock:
            self._held[segment] = fd
            if self._fd < 0:  # given up meanwhile
                self._give_up()
        self._check_open()

    def _give_up(self) -> None:
        """Lets go of every segment: whoever takes one over finds all that was written."""
        self._fd = -1
        while self._held:
            os.close(self._held.popitem()[1])  # gives up the lock

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self._take_back()
            raise

    def _take_back(self) -> None:
        """Removes half a record. Where even that fails, this writer writes nothing more."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._give_up()
            raise


def _cut_torn_tail(segment: Path) -> Torn | None:
    """Cuts the torn tail off a segment, unless its writer lives."""
    with segment.open("rb") as file:
        return _mend(segment) if lock(file.fileno()) else None


def _mend(segment: Path) -> Torn | None:
    """Cuts the torn tail off a segment that is locked here."""
    torn = frames.torn_tail(segment)
    if torn:
        with segment.open("r+b") as writable:
            writable.truncate(torn.offset)
            os.fsync(writable.fileno())
    return torn


def _flush_names(directory: Path) -> None:
    """Makes a new file's name outlive the machine."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unwritable(error: OSError, path: Path) -> LogUnwritable:
    reason = f"the log cannot be written: {error.strerror}"
    return LogUnwritable(error.errno, reason, str(error.filename or path))
