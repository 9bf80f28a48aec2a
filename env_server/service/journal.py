"""The way of records into the log: before a reply leaves, and only where there is room.

It knows no session: whoever has records that are due brings them here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from env_server.errors import LogUnwritable
from env_server.log import LogWriter
from env_server.service.limits import FreeSpace
from env_server.service.metrics import Metrics

log = structlog.get_logger()


class Journal:
    """The log of one server, as its sessions write it.

    Attributes:
        writer: Of the log.
    """

    def __init__(
        self,
        directory: Path,
        announce: Callable[[Path], None],
        least_free_bytes: int,
        metrics: Metrics,
    ) -> None:
        """Opens the log of a directory, cuts torn tails, and begins a segment of its own.

        Args:
            directory: Of the log.
            announce: Told of each segment that this server holds.
            least_free_bytes: That must be free on the disk.
            metrics: Count what is written, and what cannot be.

        Raises:
            OSError: The directory cannot be written.
        """
        self.writer = LogWriter(directory, announce=announce)
        self._disk = FreeSpace(directory, least_free_bytes, metrics.log_errors.inc)
        self._metrics = metrics
        self._failed = False
        for cut in self.writer.cut:
            log.warning("torn_tail_cut", file=str(cut.path), bytes=cut.length)

    def check(self) -> None:
        """Makes sure that there is room for more records; to be called before anything is done.

        Raises:
            LogUnwritable: There is not.
        """
        self._disk.check()

    def write(self, waiting: Iterable[list[bytes]]) -> None:
        """Writes records, all or none, and empties the lists that they wait in.

        Raises:
            LogUnwritable: The log cannot be written; the records stay where they are.
        """
        due = [pending for pending in waiting if pending]
        if not due:
            return
        try:
            written = self.writer.append([record for pending in due for record in pending])
        except OSError as e:
            raise self.unwritable(e) from None
        self._metrics.log_bytes.inc(written)
        for pending in due:
            pending.clear()
        if self._failed:
            self._failed = False
            log.warning("log_writable_again")

    def unwritable(self, error: OSError) -> LogUnwritable:
        """The error for a client whose call cannot be recorded."""
        self._metrics.log_errors.inc()
        if not self._failed:  # once, and not for every call
            self._failed = True
            log.error("log_unwritable", error=str(error))
        return LogUnwritable(
            "the log cannot be written: what was asked is done but not recorded; "
            "send the same call again, and no other"
        )

    @property
    def is_lost(self) -> bool:
        """Whether the log takes nothing more, so that no step can be taken any more."""
        return self.writer.given_up

    def sync(self) -> None:
        """Brings what was written to the disk itself.

        Raises:
            OSError: The disk does not take it.
        """
        try:
            self._disk.look()
            self.writer.sync()
        except OSError:
            self._metrics.log_errors.inc()
            raise

    def close(self) -> None:
        """Flushes and closes the log.

        Raises:
            OSError: The disk does not take what was written.
        """
        self.writer.close()
