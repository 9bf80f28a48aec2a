"""Where environment code runs: that of the bundled ones in the event loop, the rest in processes.

Whatever environment code raises is a fault of the server. Traces are logged as plain text,
without the values of variables, which may be large. It knows no session and writes no record.
"""

from __future__ import annotations

from collections.abc import Callable
from traceback import format_exc
from typing import ParamSpec, Protocol, TypeVar

import structlog

from env_server.env import Action
from env_server.episode import EpisodeSpec
from env_server.errors import RailgymError
from env_server.registry import EnvEntry
from env_server.service.stage import Stage
from env_server.tasks import Task
from railgym import codec as wire
from railgym.v1 import env_service_pb2, episode_pb2, space_pb2

Result = TypeVar("Result")
Given = ParamSpec("Given")

log = structlog.get_logger()


class EnvFailed(Exception):
    """Environment code failed. The text is the class of what it raised, and nothing else."""


class EnvStopped(EnvFailed):
    """The environment's process is no more, and the episode with it."""


class EnvTimedOut(EnvStopped):
    """Environment code did not come to an end within its limit of time, and was stopped."""

    def __init__(self, limit_seconds: float) -> None:
        """Keeps the limit."""
        super().__init__("TimedOut")
        self.limit_seconds = limit_seconds


class Progress(Protocol):
    """What a session knows of the latest episode, wherever it is played: see `Episode`."""

    @property
    def spec(self) -> EpisodeSpec:
        """What the episode depends on."""
        ...

    @property
    def latest(self) -> int:
        """Steps taken."""
        ...

    @property
    def end(self) -> str | None:
        """Why it ended, or None."""
        ...

    @property
    def truncated(self) -> bool:
        """Whether the latest transition cut it off."""
        ...

    @property
    def state_hash(self) -> bytes:
        """Of the state after the latest step."""
        ...


class Host(Protocol):
    """Runs the code of one environment: see `Stage` for what its methods do.

    They raise RailgymError where the environment refuses what a client asks for, and EnvFailed
    where it fails; the server's log then says more.
    """

    @property
    def episode(self) -> Progress | None:
        """The latest episode; None before the first."""
        ...

    async def info(self, task_count: int) -> env_service_pb2.EnvInfo:
        """What a client may know of the environment."""
        ...

    async def begin(self, spec: EpisodeSpec) -> episode_pb2.EpisodeStarted:
        """Begins the next episode."""
        ...

    async def take(
        self, number: int, received: episode_pb2.Action, turn: int = 0
    ) -> episode_pb2.StepTaken:
        """Takes a step, or repeats the reply to the latest one."""
        ...

    async def render(self) -> space_pb2.Value:
        """What the environment shows."""
        ...

    def received(self, steps: int) -> list[episode_pb2.Action]:
        """The first actions of the latest episode."""
        ...

    def end(self) -> None:
        """Closes the environment once it is done with what it is at. Nobody waits for it."""
        ...


class LoopHost:
    """Runs the code of a bundled environment where it is called, in the event loop."""

    def __init__(self, entry: EnvEntry, task: Task | None, labels: dict[str, str]) -> None:
        """Makes nothing yet; see `Stage` for the arguments."""
        self._stage = Stage(entry, task, labels)
        self._env_id = entry.env_id

    @property
    def episode(self) -> Progress | None:
        """The latest episode; None before the first."""
        return self._stage.episode

    async def info(self, task_count: int) -> env_service_pb2.EnvInfo:
        """What a client may know of the environment."""
        return self._guarded(self._stage.info, task_count)

    async def begin(self, spec: EpisodeSpec) -> episode_pb2.EpisodeStarted:
        """Begins the next episode."""
        return self._guarded(self._stage.begin, spec)

    async def take(
        self, number: int, received: episode_pb2.Action, turn: int = 0
    ) -> episode_pb2.StepTaken:
        """Takes a step, or repeats the reply to the latest one."""
        return self._guarded(self._stage.take, number, received, turn)

    async def render(self) -> space_pb2.Value:
        """What the environment shows."""
        return self._guarded(self._stage.render)

    def received(self, steps: int) -> list[episode_pb2.Action]:
        """The first actions of the latest episode."""
        episode = self._stage.episode
        assert episode is not None
        actions: list[Action] = episode.actions[:steps]
        return [wire.action_to_proto(action, episode.env.action_space) for action in actions]

    def end(self) -> None:
        """Closes the environment."""
        try:
            self._guarded(self._stage.close)
        except EnvFailed:
            log.error("env_failed_to_close", env_id=self._env_id)

    def _guarded(
        self, code: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        try:
            return code(*args, **kwargs)
        except RailgymError:
            raise
        except BaseException as e:  # whatever it raises, even an exit, must not reach others
            log.error("env_failed", env_id=self._env_id, exception=format_exc())
            raise EnvFailed(type(e).__name__) from None
