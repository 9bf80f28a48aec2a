"""What a server holds clients and environments to, and gRPC's options that see to some of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from env_server.errors import LogUnwritable

MAX_HEADER_BYTES = 16 * 1024
"""Of the metadata of one call. A call with more is refused before its message is read."""

log = structlog.get_logger()


class Limits(NamedTuple):
    """The limits of one server. 0: no limit.

    Attributes:
        step_seconds: Of one reset, step or render of a foreign environment, its making included.
        env_bytes: Memory of the process of a foreign environment.
        message_bytes: Of one message, in either direction, decompressed.
        calls: At work at once. One connection gets at most half of them at once, so that nobody
            shuts out the others; what it asks for beyond waits at the client.
        free_log_bytes: That must stay free on the disk of the log.
    """

    step_seconds: float = 60.0
    env_bytes: int = 4 * 1024**3
    message_bytes: int = 16 * 1024**2
    calls: int = 20_000
    free_log_bytes: int = 256 * 1024**2

    def options(self) -> list[tuple[str, Any]]:
        """The options of gRPC that hold clients to them."""
        size = self.message_bytes or -1
        options = [
            ("grpc.max_receive_message_length", size),
            ("grpc.max_send_message_length", size),
            ("grpc.max_metadata_size", MAX_HEADER_BYTES),
            ("grpc.absolute_max_metadata_size", MAX_HEADER_BYTES),
        ]
        if self.calls:
            options += [
                ("grpc.max_concurrent_streams", max(1, self.calls // 2)),
                # By default gRPC cancels some of more than 1,000 calls that begin at once.
                ("grpc.server.max_pending_requests", self.calls),
                ("grpc.server.max_pending_requests_hard_limit", self.calls),
            ]
        return options


class FreeSpace:
    """Watches how much is free on the disk of the log."""

    def __init__(
        self, directory: Path, least_bytes: int, refused: Callable[[], None] = lambda: None
    ) -> None:
        """Looks for the first time.

        Args:
            directory: Of the log.
            least_bytes: That must be free.
            refused: Told of everything that is refused for it.

        Raises:
            OSError: There is no such directory.
        """
        self._directory = directory
        self._least_bytes = least_bytes
        self._refused = refused
        self._is_short = False
        self.look()

    def look(self) -> None:
        """Looks again. To be called often: `check` goes by what was seen last.

        Raises:
            OSError: The directory is gone.
        """
        disk = os.statvfs(self._directory)
        free = disk.f_bavail * disk.f_frsize
        was_short, self._is_short = self._is_short, free < self._least_bytes
        if self._is_short and not was_short:
            log.error("log_disk_is_short", free_bytes=free, least_bytes=self._least_bytes)
        elif was_short and not self._is_short:
            log.warning("log_disk_has_room_again", free_bytes=free)

    def check(self) -> None:
        """Makes sure that there is room for more records.

        Raises:
            LogUnwritable: There is not; nothing has been done.
        """
        if self._is_short:
            self._refused()
            raise LogUnwritable(
                f"the disk of the log has less than {self._least_bytes:,} bytes free; "
                "nothing was done, send the same call again"
            )
