"""One process of a foreign environment, as the server sees it: asked over a socket, and killed.

It knows frames, and not what is in them: see `env_process` and `env_child`.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
from collections.abc import Callable

from env_server.log.frames import MAX_PAYLOAD
from env_server.service import env_child
from env_server.service.env_child import HEAD, Opening, frame

CLOSE_SECONDS = 5.0
"""For an environment to close itself; then its process is killed."""


class EnvProcess:
    """A process, and the connection to it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        forget: Callable[[EnvProcess], None],
    ) -> None:
        """Awaits its birth.

        Args:
            reader: What it sends.
            writer: What it is sent.
            forget: Told when it is no more.
        """
        self._reader = reader
        self._writer = writer
        self._forget = forget
        self._pid = 0
        self._pidfd = -1
        self._loop = asyncio.get_running_loop()

    async def begin(self, opening: Opening) -> None:
        """Waits for its birth, and tells it what to play."""
        self._writer.write(frame(env_child.OPEN, json.dumps(opening).encode()))
        _, payload = await self._read()
        self._pid = int(json.loads(payload))
        self._pidfd = os.pidfd_open(self._pid)
        self._loop.add_reader(self._pidfd, self._buried)

    async def ask(self, kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """Sends a request.

        Returns:
            The kind and the payload of the answer.

        Raises:
            OSError: The process is gone.
            EOFError: The same.
            ValueError: What it sends is no answer.
        """
        self._writer.write(frame(kind, payload))
        return await self._read()

    def close(self) -> None:
        """Lets the process end by itself, within `CLOSE_SECONDS`."""
        self._writer.close()
        self._loop.call_later(CLOSE_SECONDS, self.kill)

    def kill(self) -> None:
        """Ends the process at once, and what it has started with it."""
        if self._lives():
            os.killpg(self._pid, signal.SIGKILL)
        self._buried()

    def _lives(self) -> bool:
        return self._pidfd >= 0 and not select.select([self._pidfd], [], [], 0)[0]

    def _buried(self) -> None:
        self._writer.close()
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        self._forget(self)

    async def _read(self) -> tuple[bytes, bytes]:
        kind, size = HEAD.unpack(await self._reader.readexactly(HEAD.size))
        if size > MAX_PAYLOAD:
            raise ValueError(f"expected at most {MAX_PAYLOAD:,} bytes, got {size:,}")
        return kind, await self._reader.readexactly(size)
