"""Plays the episodes of one session, one after the other, and has each written down.

It knows no gRPC, no lease and no other session, and is for one caller at a time: see `Session`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from env_server.episode import EpisodeSpec
from env_server.errors import EnvError, EpisodeOutOfOrder, EpisodeOver, NotReset, StepTimedOut
from env_server.service.env_process import Hosts
from env_server.service.hosting import EnvFailed, EnvStopped, EnvTimedOut, Host, Progress
from env_server.service.metrics import EnvMetrics
from env_server.service.records import Opening, Records
from railgym.v1 import env_service_pb2, episode_pb2, space_pb2


class Player:
    """The environment of one session, and the episodes that are played in it.

    Attributes:
        opening: What the session was opened for.
        records: What happened.
        episode: The latest episode, or None.
        started: The record that it began with.
        number: Number of the latest episode; 0: none.
        abandoned: Why the latest episode ended, where it did not end by itself.
    """

    def __init__(
        self, opening: Opening, records: Records, metrics: EnvMetrics, hosts: Hosts
    ) -> None:
        """Awaits a reset, which makes the environment."""
        self.opening = opening
        self.records = records
        self.episode: Progress | None = None
        self.started = episode_pb2.EpisodeStarted()
        self.number = 0
        self.abandoned: str | None = None
        self._metrics = metrics
        self._hosts = hosts
        self._host = self._new_host()

    async def take_up(
        self,
        number: int,
        started: episode_pb2.EpisodeStarted,
        again: Callable[[Host], Awaitable[str | None]],
    ) -> None:
        """Goes on with an episode of the log.

        Args:
            number: Of the episode.
            started: The record that it began with.
            again: Plays it again, and says why it was abandoned, if it was.

        Raises:
            NotResumable: It cannot be played again.
            EnvFailed: The environment failed.
        """
        self.abandoned = await again(self._host)
        episode = self.episode = self._host.episode
        assert episode is not None
        self.started, self.number = started, number
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

    def running(self, episode: int = 0) -> Progress:
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
    ) -> tuple[int, episode_pb2.EpisodeStarted]:
        """Begins the next episode, or does nothing for a repeat of the latest one's reset.

        Args:
            number: The episode to begin; 0: the next.
            seed: None: the first episode draws one, a later one goes on with the generator.
            options: Laid over those of the task.

        Returns:
            The number of the episode, and the record that it began with.

        Raises:
            EpisodeOutOfOrder: `number` is neither the latest nor the next, or the latest has
                steps or was asked for otherwise.
            BadOptions: The environment does not take the options.
            EnvError: The environment failed.
        """
        task = self.opening.task
        options = {**(task.options if task else {}), **options}
        if number and number == self.number and self._repeats(seed, options):
            return number, self.started
        if number not in (0, self.number + 1):
            raise EpisodeOutOfOrder(
                f"expected episode {self.number + 1} to begin, got {number}",
                expected=self.number + 1,
                got=number,
            )
        rule, shaping = self.opening.rule, self.opening.shaping
        env_id = self.opening.entry.env_id
        await self.begin(EpisodeSpec(env_id, task, options, seed, None, rule, shaping))
        return self.number, self.started

    async def begin(self, spec: EpisodeSpec, origin: episode_pb2.ForkOrigin | None = None) -> None:
        """Begins the next episode; one that runs ends as "client_closed".

        Args:
            spec: What it depends on.
            origin: The episode that it is to copy; None: none.

        Raises:
            BadOptions: The environment does not take the options.
            EnvError: The environment failed.
        """
        try:
            started = await self._host.begin(spec)
        except EnvFailed as e:
            raise self._fail(e) from None
        if origin is not None:
            started.forked_from.CopyFrom(origin)
        self._end_running("client_closed")
        self.episode, self.started = self._host.episode, started
        self.number, self.abandoned = self.number + 1, None
        self.records.start(self.number, started)

    async def step(
        self, episode: int, number: int, received: episode_pb2.Action, turn: int = 0
    ) -> episode_pb2.Transition:
        """Takes a step of the latest episode, or repeats the reply to the latest one.

        Args:
            episode: Its number, or 0.
            number: 1 for the first step.
            received: The action, as it came.
            turn: The model's turn, from 1; 0: not said.

        Raises:
            RailgymError: As `running` and `Episode.step`.
            EnvError: The environment failed.
            StepTimedOut: It did not come to an end in time.
        """
        running, began = self.running(episode), time.perf_counter()
        before = running.latest
        try:
            taken = await self._host.take(number, received, turn)
        except EnvFailed as e:
            raise self._fail(e) from None
        if running.latest > before:
            self._metrics.stepped(taken.transition, time.perf_counter() - began)
            self.records.step(self.number, taken)
            if running.end is not None:
                self._note_end(running.end)
        return taken.transition

    async def render(self) -> space_pb2.Value:
        """What the environment shows, an empty value where that is nothing.

        Raises:
            NotReset: No episode has begun.
            EnvError: The environment failed. The episode goes on, if the environment still can.
            StepTimedOut: It did not come to an end in time.
        """
        self.running()
        try:
            return await self._host.render()
        except EnvStopped as e:
            raise self._fail(e) from None
        except EnvFailed:
            raise self.env_error("it cannot be shown; see the server's log") from None

    def received(self, steps: int) -> list[episode_pb2.Action]:
        """The first actions of the latest episode."""
        return self._host.received(steps)

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
        self._host.end()
        self._host = self._new_host()

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

    def _new_host(self) -> Host:
        opening = self.opening
        return self._hosts.host(opening.entry, opening.task, opening.labels)

    def _fail(self, failure: EnvFailed) -> EnvError | StepTimedOut:
        """Notes that the environment failed, which ends the episode that runs as "env_error".

        Returns:
            What the client is told.
        """
        runs = self.state == env_service_pb2.SESSION_STATE_RUNNING
        number = self.number if runs else self.number + 1  # else: of its reset
        self.records.fault(number, str(failure))
        self._end_running("env_error")
        self.drop_env()
        if isinstance(failure, EnvTimedOut):
            limit = f"{failure.limit_seconds:g}"
            return StepTimedOut(
                f"environment {self.opening.entry.env_id} took longer than {limit} s: stopped",
                session_id=self.records.session_id,
                limit_seconds=limit,
            )
        return self.env_error("it failed; the trace stands in the server's log")

    def _end_running(self, reason: str) -> None:
        if self.state == env_service_pb2.SESSION_STATE_RUNNING:
            self._note_end(reason)
            self.abandoned = reason

    def _note_end(self, reason: str) -> None:
        self.records.end(self.number, reason)
        self._metrics.episode_ended(reason)
