"""Plays the episodes of one session, one after the other, and has each written down.

It knows no gRPC, no lease and no other session, and is for one caller at a time: see `Session`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from env_server import codec
from env_server.env import StatefulEnv
from env_server.envs.hosted import generator_state
from env_server.episode import Episode, EpisodeSpec
from env_server.errors import EnvError, EpisodeOutOfOrder, EpisodeOver, NotReset
from env_server.service.hosting import EnvFailed, Host, fitting
from env_server.service.records import Opening, Records
from railgym.v1 import env_service_pb2, episode_pb2

Result = TypeVar("Result")


class Player:
    """The environment of one session, and the episodes that are played in it.

    Attributes:
        opening: What the session was opened for.
        records: What happened.
        episode: The latest episode, or None.
        number: Number of the latest episode; 0: none.
        abandoned: Why the latest episode ended, where it did not end by itself.
    """

    def __init__(self, opening: Opening, records: Records) -> None:
        """Awaits a reset, which makes the environment."""
        self.opening = opening
        self.records = records
        self.episode: Episode | None = None
        self.number = 0
        self.abandoned: str | None = None
        self._host = Host(opening.entry)
        self._env: StatefulEnv | None = None

    async def take_up(self, number: int, again: Callable[[], tuple[Episode, str | None]]) -> None:
        """Goes on with an episode of the log.

        Args:
            number: Of the episode.
            again: Plays it again, and says why it was abandoned, if it was.

        Raises:
            NotResumable: It cannot be played again.
            EnvFailed: The environment failed.
        """
        episode, self.abandoned = await self._host.run(again)
        self.episode, self.number, self._env = episode, number, episode.env
        self.records.latest, self.records.state_hash = episode.latest, episode.state_hash

    @property
    def episode_id(self) -> str:
        """Id of the latest episode."""
        return f"{self.records.session_id}.{self.number}"

    @property
    def state(self) -> env_service_pb2.SessionState.ValueType:
        """Where the session stands."""
        if self.episode is None:
            return env_service_pb2.SESSION_STATE_AWAITING_RESET
        if self.episode.truncated or self.abandoned is not None:
            return env_service_pb2.SESSION_STATE_TRUNCATED
        if self.episode.end is None:
            return env_service_pb2.SESSION_STATE_RUNNING
        return env_service_pb2.SESSION_STATE_TERMINATED

    def running(self, episode: int = 0) -> Episode:
        """The latest episode, which can be stepped.

        Args:
            episode: Its number, or 0.

        Raises:
            NotReset: No episode has begun.
            EpisodeOutOfOrder: `episode` is another one.
            EpisodeOver: The episode was abandoned.
        """
        if self.episode is None:
            raise NotReset(
                "no episode has begun: call Reset first",
                session_id=self.records.session_id,
                state="AWAITING_RESET",
            )
        if episode not in (0, self.number):
            raise EpisodeOutOfOrder(
                f"expected episode {self.number}, which is the latest, got {episode}",
                expected=self.number,
                got=episode,
            )
        if self.abandoned is not None:
            raise EpisodeOver(
                f"the episode ended after step {self.episode.latest}: {self.abandoned}",
                step=self.episode.latest,
                reason=self.abandoned,
            )
        return self.episode

    async def reset(
        self, number: int, seed: int | None, options: dict[str, Any]
    ) -> tuple[int, Episode]:
        """Begins the next episode, or does nothing for a repeat of the latest one's reset.

        Args:
            number: The episode to begin; 0: the next.
            seed: None: the first episode draws one, a later one goes on with the generator.
            options: Laid over those of the task.

        Returns:
            The number of the episode, and the episode.

        Raises:
            EpisodeOutOfOrder: `number` is neither the latest nor the next, or the latest has
                steps or was asked for otherwise.
            BadOptions: The environment does not take the options.
            EnvError: The environment failed.
        """
        entry, task, _, rule = self.opening
        options = {**(task.options if task else {}), **options}
        if number and number == self.number and self._repeats(seed, options):
            return number, self.running()
        if number not in (0, self.number + 1):
            raise EpisodeOutOfOrder(
                f"expected episode {self.number + 1} to begin, got {number}",
                expected=self.number + 1,
                got=number,
            )
        generator = None if seed is not None or self._env is None else generator_state(self._env)
        if seed is None and generator is None:
            seed = secrets.randbits(32)
        spec = EpisodeSpec(entry.env_id, task, options, seed, generator, rule)
        episode = await self.begin(spec)
        return self.number, episode

    async def begin(
        self, spec: EpisodeSpec, origin: episode_pb2.ForkOrigin | None = None
    ) -> Episode:
        """Begins the next episode; one that runs ends as "client_closed".

        Args:
            spec: What it depends on.
            origin: The episode that it is to copy; None: none.

        Raises:
            BadOptions: The environment does not take the options.
            EnvError: The environment failed.
        """
        episode, started = await self._run(lambda: self._begin(spec))
        if origin is not None:
            started.forked_from.CopyFrom(origin)
        self._end_running("client_closed")
        self.episode, self.number, self.abandoned = episode, self.number + 1, None
        self.records.start(self.number, started)
        return episode

    async def step(
        self, episode: Episode, number: int, received: episode_pb2.Action, turn: int = 0
    ) -> episode_pb2.Transition:
        """Takes a step, or repeats the reply to the latest one.

        Args:
            episode: The latest one.
            number: 1 for the first step.
            received: The action, as it came.
            turn: The model's turn, from 1; 0: not said.

        Raises:
            RailgymError: As `Episode.step`.
            EnvError: The environment failed.
        """
        before = episode.latest
        taken = await self._run(lambda: self._take(episode, number, received, turn))
        if episode.latest > before:
            self.records.step(self.number, taken)
            if episode.end is not None:
                self.records.end(self.number, episode.end)
        return taken.transition

    async def render(self) -> Any:
        """What the environment shows; None where it shows nothing.

        Raises:
            NotReset: No episode has begun.
            EnvError: The environment failed. The episode goes on: this was no part of it.
        """
        env: Any = self.running().env
        try:
            return await self._host.run(env.render)
        except EnvFailed:
            raise self.env_error("it cannot be shown; see the server's log") from None

    def claim(self, claim_json: str) -> None:
        """Notes what the client says of its agent, also after the end of the episode.

        Raises:
            NotReset: No episode has begun.
        """
        if self.episode is None:
            self.running()
        self.records.claim(self.number, claim_json)

    def close(self, reason: str) -> None:
        """Ends the running episode and all that follows, and lets go of the environment."""
        self._end_running(reason)
        self.records.close(reason)
        self.drop_env()

    def drop_env(self) -> None:
        """Lets go of the environment; the next reset makes another."""
        self._host.end(self._env)
        self._host, self._env = Host(self.opening.entry), None

    def env_error(self, what: str) -> EnvError:
        """The error for an environment that does not do what it should."""
        return EnvError(
            f"environment {self.opening.entry.env_id}: {what}", session_id=self.records.session_id
        )

    def _repeats(self, seed: int | None, options: dict[str, Any]) -> bool:
        """Whether a reset asks for the latest episode once more, before its first step."""
        if self.episode is None or self.episode.latest or self.abandoned is not None:
            return False
        spec = self.episode.spec
        return options == spec.options and seed in (None, spec.seed)

    def _begin(self, spec: EpisodeSpec) -> tuple[Episode, episode_pb2.EpisodeStarted]:
        if self._env is None:
            self._env = self.opening.entry.make()
        episode = Episode(spec, self._env)
        started = codec.started_event(episode, self.opening.entry, self.opening.labels)
        return episode, fitting(started)

    def _take(
        self, episode: Episode, number: int, received: episode_pb2.Action, turn: int
    ) -> episode_pb2.StepTaken:
        action = codec.action_from_proto(received, self.opening.entry, episode.env.action_space)
        reply = episode.step(number, action)
        transition = codec.reply_to_proto(reply, episode.env)
        return fitting(
            episode_pb2.StepTaken(step=number, turn=turn, action=received, transition=transition)
        )

    async def _run(self, code: Callable[[], Result]) -> Result:
        """Runs code of the environment.

        Raises:
            EnvError: It failed. The episode that ran has ended as "env_error".
        """
        try:
            return await self._host.run(code)
        except EnvFailed as e:
            self._fail(str(e))
            raise self.env_error("it failed; the trace stands in the server's log") from None

    def _fail(self, error: str) -> None:
        runs = self.state == env_service_pb2.SESSION_STATE_RUNNING
        self.records.fault(self.number if runs else self.number + 1, error)  # else: of its reset
        self._end_running("env_error")
        self.drop_env()

    def _end_running(self, reason: str) -> None:
        if self.state == env_service_pb2.SESSION_STATE_RUNNING:
            self.records.end(self.number, reason)
            self.abandoned = reason
