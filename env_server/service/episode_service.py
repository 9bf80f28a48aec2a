"""The EpisodeService: the log of the server, listed, read and scored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar

import grpc

from env_server.errors import UnknownEpisode, shown
from env_server.log import Damage, LoggedEpisode, group, read
from env_server.log import Record as LogRecord
from env_server.scoring.replay import Outcome
from env_server.scoring.score import EpisodeScore, Scorer
from env_server.service import caller
from env_server.service.env_service import page
from env_server.service.identity import ANYONE, Operator
from env_server.service.sessions import Sessions
from env_server.service.status import streaming, unary
from railgym import codec as wire
from railgym.v1 import episode_pb2
from railgym.v1 import episode_service_pb2 as pb
from railgym.v1.episode_service_pb2_grpc import EpisodeServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]
Item = TypeVar("Item")


class EpisodeService(EpisodeServiceServicer):
    """See proto/railgym/v1/episode_service.proto for the contract."""

    def __init__(self, sessions: Sessions) -> None:
        """Serves the log that these sessions write."""
        self.metrics = sessions.metrics
        self._directory = sessions.directory
        self._registry = sessions.registry

    @unary
    async def ListEpisodes(
        self, request: pb.ListEpisodesRequest, context: Context
    ) -> pb.ListEpisodesResponse:
        """Lists the episodes in the log."""
        found = await asyncio.to_thread(self._list, request.env_id, caller.operator())
        chosen, token = page(found, request.page_size, request.page_token)
        return pb.ListEpisodesResponse(episodes=chosen, next_page_token=token)

    @streaming
    async def ReadEpisode(
        self, request: pb.ReadEpisodeRequest, context: Context
    ) -> AsyncGenerator[pb.ReadEpisodeResponse, None]:
        """Streams the events of one episode."""
        known = False
        if not request.episode_id:
            raise _unknown("")
        async for event in _in_thread(self._events(request.episode_id, caller.operator())):
            known = True
            yield pb.ReadEpisodeResponse(event=event)
        if not known:
            raise _unknown(request.episode_id)

    @streaming
    async def ScoreEpisodes(
        self, request: pb.ScoreEpisodesRequest, context: Context
    ) -> AsyncGenerator[pb.ScoreEpisodesResponse, None]:
        """Replays episodes and streams their scores."""
        missing = set(request.episode_ids)
        async for score in _in_thread(self._scores(frozenset(missing), caller.operator())):
            missing.discard(score.episode_id)
            if score.outcome is not Outcome.VERIFIED:
                self.metrics.replay_mismatches.labels(score.outcome).inc()
            yield pb.ScoreEpisodesResponse(score=_score(score))
        if missing:
            raise _unknown(min(missing))

    def _list(self, env_id: str, operator: Operator) -> list[pb.EpisodeInfo]:
        found = [
            _info(logged, logged.started)
            for logged in self._episodes(operator)
            if logged.started is not None and env_id in ("", logged.started.env_id)
        ]
        return sorted(found, key=lambda info: (info.start_time.ToNanoseconds(), info.episode_id))

    def _events(self, episode_id: str, operator: Operator) -> Iterator[episode_pb2.EpisodeEvent]:
        for record in _seen_by(operator, read(self._directory)):
            if isinstance(record, LogRecord) and record.event.episode_id == episode_id:
                yield record.event

    def _scores(self, wanted: frozenset[str], operator: Operator) -> Iterator[EpisodeScore]:
        scorer = Scorer(self._registry)
        for logged in self._episodes(operator):
            if not wanted or logged.episode_id in wanted:
                yield scorer.score(logged)

    def _episodes(self, operator: Operator) -> Iterator[LoggedEpisode]:
        return group(_seen_by(operator, read(self._directory)))


def _seen_by(
    operator: Operator, records: Iterable[LogRecord | Damage]
) -> Iterator[LogRecord | Damage]:
    """The records of an operator's sessions; damage, which may be anyone's, where all are."""
    own: set[str] = set()
    for item in records:
        if operator == ANYONE:
            yield item
        elif isinstance(item, LogRecord):
            event = item.event
            if event.HasField("session_opened") and operator.sees(event.session_opened.tenant):
                own.add(event.session_id)
            if event.session_id in own:
                yield item


async def _in_thread(items: Iterator[Item]) -> AsyncIterator[Item]:
    """Draws items of an iterator that takes its time, without holding up the server."""
    end = object()
    while True:
        item: Any = await asyncio.to_thread(next, items, end)
        if item is end:
            return
        yield item


def _info(logged: LoggedEpisode, started: episode_pb2.EpisodeStarted) -> pb.EpisodeInfo:
    info = pb.EpisodeInfo(
        episode_id=logged.episode_id,
        env_id=started.env_id,
        task_id=started.task_id,
        labels=started.labels,
        step=len(logged.steps),
    )
    info.start_time.FromNanoseconds(logged.start_time)
    if logged.ended is not None:
        info.end_reason = logged.ended.reason
    return info


def _score(score: EpisodeScore) -> pb.EpisodeScore:
    return pb.EpisodeScore(
        episode_id=score.episode_id,
        env_id=score.env_id,
        task_id=score.task_id,
        level=score.level,
        labels=score.labels,
        outcome=pb.ReplayOutcome.Value(f"REPLAY_OUTCOME_{score.outcome}"),
        step=score.step,
        detail=score.detail,
        end_reason=wire.end_reason_to_proto(score.end_reason),
        valid=score.valid,
        success=score.success,
        reward=score.reward,
        first_fault=score.first_fault or "",
        metrics=score.metrics,
        task_sha256=score.task_sha256,
        invalid_reason=score.invalid_reason or "",
        steps=score.steps,
        verdict=score.verdict,
        fault=score.fault or "",
        tools_used=score.tools_used,
        models=[pb.ModelUsage(**usage._asdict()) for usage in score.models],
        temperature=score.temperature,
        price_source=score.price_source,
    )


def _unknown(episode_id: str) -> UnknownEpisode:
    return UnknownEpisode(
        f"the log holds no episode {shown(episode_id)}", episode_id=episode_id[:80]
    )
