"""One environment and the episode that is played in it, where its code runs.

What comes in and goes out are the messages of the wire and of the log, so that it makes no
difference to a session whether the stage stands in the server's event loop or in a process of its
own. It knows neither, and no session.
"""

from __future__ import annotations

import secrets
from typing import Any, TypeVar

from env_server import codec
from env_server.env import StatefulEnv
from env_server.envs.hosted import generator_state
from env_server.episode import Episode, EpisodeSpec
from env_server.log.frames import MAX_PAYLOAD
from env_server.registry import EnvEntry
from env_server.tasks import Task
from railgym import codec as wire
from railgym.v1 import env_service_pb2, episode_pb2, space_pb2

Sized = TypeVar("Sized", episode_pb2.EpisodeStarted, episode_pb2.StepTaken, space_pb2.Value)

MAX_EVENT = MAX_PAYLOAD - 64 * 1024
"""Bytes of an event. What is left of a record's 16 MiB is for the record itself."""


class Stage:
    """Plays the episodes of one environment, one after the other.

    Whatever environment code raises comes out of its methods as it is.

    Attributes:
        episode: The latest episode; None before the first.
    """

    def __init__(self, entry: EnvEntry, task: Task | None, labels: dict[str, str]) -> None:
        """Awaits the first episode, which makes the environment.

        Args:
            entry: The environment.
            task: Of every episode; None: none.
            labels: For the record of every episode.
        """
        self.episode: Episode | None = None
        self._entry = entry
        self._task = task
        self._labels = labels
        self._env: StatefulEnv | None = None

    def info(self, task_count: int) -> env_service_pb2.EnvInfo:
        """What a client may know of the environment, its tools limited to those of the task."""
        return codec.env_info(self._entry, task_count, self._task)

    def begin(self, spec: EpisodeSpec) -> episode_pb2.EpisodeStarted:
        """Begins the next episode.

        Args:
            spec: What it depends on. Where it has neither seed nor generator, the environment's
                generator goes on; a first episode draws a seed.

        Returns:
            Its record.

        Raises:
            BadOptions: The environment does not take the options.
            ValueError: The record would be too large.
        """
        env = self._env = self._env or self._entry.make()
        if spec.seed is None and spec.generator_state is None:
            generator = None if self.episode is None else generator_state(env)
            seed = secrets.randbits(32) if generator is None else None
            spec = spec._replace(seed=seed, generator_state=generator)
        episode = Episode(spec, env)
        started = fitting(codec.started_event(episode, self._entry, self._labels))
        self.episode = episode
        return started

    def take(
        self, number: int, received: episode_pb2.Action, turn: int = 0
    ) -> episode_pb2.StepTaken:
        """Takes a step of the latest episode, or repeats the reply to the latest one.

        Args:
            number: 1 for the first step.
            received: The action, as it came.
            turn: The model's turn, from 1; 0: not said.

        Returns:
            Its record.

        Raises:
            RailgymError: As `Episode.step`.
            ValueError: The record would be too large.
        """
        episode = self.episode
        assert episode is not None
        action = codec.action_from_proto(received, self._entry, episode.env.action_space)
        reply = episode.step(number, action)
        transition = codec.reply_to_proto(reply, episode.env)
        return fitting(
            episode_pb2.StepTaken(step=number, turn=turn, action=received, transition=transition)
        )

    def render(self) -> space_pb2.Value:
        """What the environment shows, an empty value where that is nothing.

        Raises:
            ValueError: It is too large.
        """
        env: Any = self._env
        return fitting(wire.value_to_proto(env.render()))

    def close(self) -> None:
        """Closes the environment, if there is one."""
        env: Any = self._env
        if env is not None:
            env.close()


def fitting(message: Sized) -> Sized:
    """Gives what a record or a response is made of, if it fits into one.

    Raises:
        ValueError: It is too large.
    """
    size = message.ByteSize()
    if size > MAX_EVENT:
        raise ValueError(f"expected at most {MAX_EVENT:,} bytes, got {size:,}")
    return message
