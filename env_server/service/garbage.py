"""When Python looks for garbage that refers to itself; all other garbage goes at once.

A look at everything stops the server for as long as it takes: 0.8 s with 10,000 sessions, every
20 seconds or so if Python is left to itself, and that was the 99th percentile of a step. So what is
young is looked at as ever, and everything only once in a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

FULL_SECONDS = 600.0
"""Between two looks at everything."""

_NEVER = 1_000_000_000
"""Young collections before a full one."""


@contextlib.asynccontextmanager
async def collecting_rarely() -> AsyncIterator[None]:
    """Keeps full collections apart while the block runs, in the whole process."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # modules and the like: they stay
    gc.set_threshold(*before[:2], _NEVER)
    collecting = asyncio.create_task(_collect())
    try:
        yield
    finally:
        collecting.cancel()
        gc.set_threshold(*before)
        gc.unfreeze()


async def _collect() -> None:
    while True:
        await asyncio.sleep(FULL_SECONDS)
        gc.collect()
