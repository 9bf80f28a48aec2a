"""A bad network: a TCP proxy on loopback that cuts, delays, throttles, and goes silent.

A part of its connections are bad from the start, as a seeded generator draws; all of them can be
made so at once. It knows nothing of what it carries.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterable
from functools import partial

HOST = "127.0.0.2"
"""Its own, on loopback as well."""

BLOCK = 16 * 1024
BAD_SHARE = 0.3
"""Of the new connections, while the weather is bad."""

LIFE_SECONDS = (0.3, 6.0)
"""Of a connection that is going to be cut or to fall silent."""


class _Link:
    """One connection through the proxy, and how it is."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.ends = (client, server)
        self.silent = False  # half open: nothing is carried, and nobody is told
        self.delay_seconds = 0.0
        self.bytes_per_second = 0.0  # 0: as many as there are


class Proxy:
    """Carries bytes from ports of its own host to the same ports of another one.

    Attributes:
        counts: What it did to its connections.
        delay_seconds: Of each block, in either direction.
        bytes_per_second: Of each connection; 0: as many as there are.
    """

    def __init__(self, rng: random.Random) -> None:
        """Begins with good weather; nothing is carried before `start`."""
        self._rng = rng
        self._bad_share = 0.0
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self.counts: Counter[str] = Counter()
        self.delay_seconds = 0.0
        self.bytes_per_second = 0.0

    async def start(self, to: str, ports: Iterable[int]) -> None:
        """Listens.

        Args:
            to: The host that bytes are carried to.
            ports: Of both hosts.
        """
        for port in ports:
            carry = partial(self._carry, to, port)
            self._servers.append(await asyncio.start_server(carry, HOST, port))

    def worsen(self) -> None:
        """Makes a part of the new connections bad from now on."""
        self._bad_share = BAD_SHARE

    def calm(self) -> None:
        """Does nothing bad any more; connections that fell silent stay so."""
        self._bad_share = self.delay_seconds = self.bytes_per_second = 0.0
        for task in self._tasks:
            task.cancel()
        for link in self._links:
            link.delay_seconds = link.bytes_per_second = 0.0

    def cut(self) -> int:
        """Breaks every connection at once, and says how many."""
        for link in self._links:
            self._cut(link)
        return len(self._links)

    def silence(self) -> int:
        """Lets every connection that there is fall silent for ever, and says how many."""
        for link in self._links:
            link.silent = True
        self.counts["fell silent"] += len(self._links)
        return len(self._links)

    async def close(self) -> None:
        """Stops, and breaks what is left."""
        self.calm()
        for server in self._servers:
            server.close()
        self.cut()
        await asyncio.sleep(0.1)

    async def _carry(
        self, to: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.counts["connections"] += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(to, port)
        except OSError:
            self.counts["refused"] += 1
            writer.transport.abort()
            return
        link = _Link(writer, far_writer)
        self._links.add(link)
        self._draw_fate(link)
        await asyncio.gather(
            self._pump(link, reader, far_writer), self._pump(link, far_reader, writer)
        )
        self._links.discard(link)
        self._cut(link)

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carries one direction to its end, which is the end of the other one too."""
        with contextlib.suppress(OSError):
            while block := await reader.read(BLOCK):
                delay = link.delay_seconds + self.delay_seconds
                for rate in (link.bytes_per_second, self.bytes_per_second):
                    delay += len(block) / rate if rate else 0.0
                if delay:
                    await asyncio.sleep(delay)
                if not link.silent:
                    writer.write(block)
                    await writer.drain()
                    self.counts["bytes"] += len(block)
        if not link.silent:
            self._cut(link)

    def _draw_fate(self, link: _Link) -> None:
        if self._rng.random() >= self._bad_share:
            return
        fate = self._rng.choice(["cut", "silent", "delayed", "throttled"])
        life = self._rng.uniform(*LIFE_SECONDS)
        if fate == "delayed":
            link.delay_seconds = self._rng.uniform(0.01, 0.3)
            self.counts["delayed"] += 1
        elif fate == "throttled":
            link.bytes_per_second = self._rng.uniform(2_000, 20_000)
            self.counts["throttled"] += 1
        else:
            task = asyncio.create_task(self._spoil(link, fate, life))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _spoil(self, link: _Link, fate: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if link not in self._links:
            return
        if fate == "cut":
            self._cut(link)
            self.counts["cut"] += 1
        else:
            link.silent = True
            self.counts["fell silent"] += 1

    def _cut(self, link: _Link) -> None:
        for end in link.ends:
            end.transport.abort()
