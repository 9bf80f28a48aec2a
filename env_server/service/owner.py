"""A server that belongs to another process, and does not outlive it.

The owner is the supervisor of several workers, or a command that has a server of its own. It holds
the other end of the server's standard input, which ends however the owner dies.
"""

from __future__ import annotations

import asyncio
import os
import sys

ORPHAN_SECONDS = 2.0
"""Left to a server whose owner is gone: the next owner may want its port."""


def follow_owner(stop: asyncio.Event) -> None:
    """Stops when standard input ends, and soon without further ado: the log is always whole."""
    loop, inherited = asyncio.get_running_loop(), sys.stdin.fileno()

    def end() -> None:
        loop.remove_reader(inherited)
        stop.set()
        loop.call_later(ORPHAN_SECONDS, os._exit, 1)

    loop.add_reader(inherited, end)
