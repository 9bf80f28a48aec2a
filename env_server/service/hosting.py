"""Where environment code runs: that of the bundled ones in the event loop, the rest on threads.

Foreign code may take any time and raise anything; whatever it raises is a fault of the server. It
knows no session and writes no record. Traces are logged as plain text, without the values of
variables, which may be large.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from traceback import format_exc
from typing import Any, TypeAlias, TypeVar

import structlog

from env_server.env import StatefulEnv
from env_server.errors import RailgymError
from env_server.log.frames import MAX_PAYLOAD
from env_server.registry import EnvEntry
from railgym.v1 import episode_pb2

Result = TypeVar("Result")
Event = TypeVar("Event", episode_pb2.EpisodeStarted, episode_pb2.StepTaken)
Job: TypeAlias = tuple[Callable[[], Any], Future[Any]]

MAX_EVENT = MAX_PAYLOAD - 64 * 1024
"""Bytes of an event. What is left of a record's 16 MiB is for the record itself."""

MAX_SECONDS = 3_600.0
"""Foreign code that takes longer has failed, so that its session does not stay for ever."""

log = structlog.get_logger()


class EnvFailed(Exception):
    """Environment code raised. The text is the class of what it raised, and nothing else."""


class Host:
    """Runs the code of one environment.

    A foreign one has a thread of its own from its making to its close, since some hold what
    belongs to a thread. It does not keep the process alive: what hangs in it holds up no end.
    """

    def __init__(self, entry: EnvEntry) -> None:
        """Starts nothing yet."""
        self._entry = entry
        self._jobs: SimpleQueue[Job | None] | None = None

    async def run(self, code: Callable[[], Result]) -> Result:
        """Runs code of the environment.

        Raises:
            RailgymError: The environment refuses what a client asks for.
            EnvFailed: It raised anything else, or does not come to an end; the server's log says
                more.
        """
        env_id = self._entry.env_id
        if not self._entry.is_foreign:
            return _guarded(env_id, code)
        future: Future[Result] = Future()
        self._thread().put((lambda: _guarded(env_id, code), future))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), MAX_SECONDS)
        except TimeoutError:
            log.error("env_hangs", env_id=env_id, seconds=MAX_SECONDS)
            raise EnvFailed("TimeoutError") from None

    def end(self, env: StatefulEnv | None) -> None:
        """Closes the environment once it is done with what it is at. Nobody waits for it."""
        if self._jobs is not None:
            self._jobs.put((lambda: _close(self._entry.env_id, env), Future()))
            self._jobs.put(None)
        else:
            _close(self._entry.env_id, env)

    def _thread(self) -> SimpleQueue[Job | None]:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            Thread(target=_work, args=[self._jobs], name=self._entry.env_id, daemon=True).start()
            weakref.finalize(self, self._jobs.put, None)  # where nobody comes to call `end`
        return self._jobs


def fitting(event: Event) -> Event:
    """Gives the event of a reset or a step, if it fits into a record of the log.

    Raises:
        ValueError: It is too large.
    """
    size = event.ByteSize()
    if size > MAX_EVENT:
        raise ValueError(f"expected an event of at most {MAX_EVENT:,} bytes, got {size:,}")
    return event


def _work(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        code, future = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(code())
            except (RailgymError, EnvFailed) as e:
                future.set_exception(e)
        del job, code, future  # or they keep an environment alive until the next job


def _guarded(env_id: str, code: Callable[[], Result]) -> Result:
    """Runs code where it runs: not everything that it may raise can leave a thread."""
    try:
        return code()
    except RailgymError:
        raise
    except BaseException as e:  # whatever it raises, even an exit, must not reach other sessions
        log.error("env_failed", env_id=env_id, exception=format_exc())
        raise EnvFailed(type(e).__name__) from None


def _close(env_id: str, env: Any) -> None:
    try:
        if env is not None:
            env.close()
    except BaseException:  # of an environment that nobody uses any more
        log.error("env_failed_to_close", env_id=env_id, exception=format_exc())
