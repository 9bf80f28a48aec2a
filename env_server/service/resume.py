"""A session taken up from the log: after a crash, a restart, or on another server.

The logged actions of its latest episode are played again, as in a replay, and the session goes on
where its last record stands.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from env_server import codec
from env_server.arguments import BadJson, BrokenJson
from env_server.episode import EpisodeSpec
from env_server.errors import NotResumable, RailgymError, StepOutOfOrder
from env_server.log import Chain, Record
from env_server.registry import Registry
from env_server.scoring import replay
from env_server.service.ended import Ended
from env_server.service.env_process import Hosts
from env_server.service.hosting import EnvFailed, Host
from env_server.service.metrics import Metrics
from env_server.service.player import Player
from env_server.service.records import Opening, Records
from env_server.service.session import Session
from railgym import codec as wire
from railgym.v1.episode_pb2 import EpisodeEvent, StepTaken


class _Diverged(Exception):
    """A replay does not come out as recorded. It leaves this module as a NotResumable."""


def end_of(records: Sequence[Record], served_since: float) -> Ended | None:
    """How a session of the log has ended; None: it may be taken up.

    Args:
        records: All of the session.
        served_since: When the server that is asked for it began, in seconds since 1970: no client
            could renew a lease before, and so none runs out by it.
    """
    last = records[-1].event
    at = last.time.seconds + last.time.nanos / 1e9
    if last.HasField("session_closed"):
        return Ended(at, wire.end_reason_from_proto(last.session_closed.reason) or "client_closed")
    first = records[0].event
    if first.HasField("session_opened"):  # else it is damaged, and its lease is not known
        over = max(at, served_since) + first.session_opened.lease_seconds
        if over < time.time():
            return Ended(over, "client_lost")
    return None


async def resume(
    records: Sequence[Record], registry: Registry, metrics: Metrics, hosts: Hosts
) -> Session:
    """Builds a session from its records.

    Args:
        records: All of the session.
        registry: What it is played again with.
        metrics: Count what it does, and what does not come out as recorded.
        hosts: Run its environment.

    Raises:
        NotResumable: The records are not whole, or cannot be followed to their end.
    """
    try:
        return await _resumed(records, registry, metrics, hosts)
    except _Diverged as e:
        metrics.replay_mismatches.labels(replay.Outcome.DIVERGED).inc()
        raise not_resumable(records[0].event.session_id, str(e)) from None
    except NotResumable:
        metrics.replay_mismatches.labels(replay.Outcome.UNREPLAYABLE).inc()
        raise


async def _resumed(
    records: Sequence[Record], registry: Registry, metrics: Metrics, hosts: Hosts
) -> Session:
    opened = records[0].event.session_opened
    session_id = records[0].event.session_id
    _check_chain(session_id, records)
    rule = codec.rule_from_proto(opened.argument_rule)
    try:
        entry = registry.env(opened.env_id)
        task = registry.task(opened.task_id) if opened.task_id else None
    except RailgymError as e:
        raise not_resumable(session_id, str(e)) from None
    shaping = codec.shaping_from_proto(opened.tool_shaping)
    opening = Opening(entry, task, dict(opened.labels), rule, opened.tenant, shaping)
    chain = Chain(session_id, records[-1].event.sequence + 1, records[-1].sha256)
    player = Player(opening, Records(chain), metrics.env(entry.env_id), hosts)
    begun = [i for i, r in enumerate(records) if r.event.HasField("episode_started")]
    if begun:
        await _take_up(player, [record.event for record in records[begun[-1] :]], registry)
    return Session(session_id, player, opened.request_id)


def not_resumable(session_id: str, detail: str) -> NotResumable:
    """The error for a session that stands in the log but cannot be taken up."""
    return NotResumable(
        f"session {session_id} cannot be resumed: {detail}", session_id=session_id, detail=detail
    )


def _check_chain(session_id: str, records: Sequence[Record]) -> None:
    previous = b""
    for number, record in enumerate(records):
        event = record.event
        if event.sequence != number or event.previous_sha256 != previous:
            raise not_resumable(session_id, f"its records are not whole, at {record.place}")
        previous = record.sha256


async def _take_up(player: Player, events: Sequence[EpisodeEvent], registry: Registry) -> None:
    session_id, _, number = events[0].episode_id.rpartition(".")
    started = events[0].episode_started
    try:
        _, task = replay.find(started, registry)
        spec = codec.spec_from_started(started, task)
        episode = int(number)
    except (replay.Unreplayable, BadJson, BrokenJson, ValueError) as e:
        raise not_resumable(session_id, str(e)) from None
    try:
        await player.take_up(episode, started, lambda host: _play(host, spec, events))
    except EnvFailed:
        detail = "its environment fails; the trace stands in the server's log"
        raise not_resumable(session_id, detail) from None


async def _play(host: Host, spec: EpisodeSpec, events: Sequence[EpisodeEvent]) -> str | None:
    """Plays an episode again, and finds why it was abandoned, if it was."""
    session_id, abandoned, latest = events[0].session_id, None, 0
    try:
        again = await host.begin(spec)
        difference = replay.compare_start(events[0].episode_started, again)
        for event in events[1:]:
            if difference is not None:
                break
            if event.HasField("step_taken"):
                latest += 1
                difference = await _follow(host, latest, event.step_taken)
            elif event.HasField("episode_ended"):
                abandoned = wire.end_reason_from_proto(event.episode_ended.reason)
    except RailgymError as e:
        raise not_resumable(session_id, f"step {latest}: {e}") from None
    if difference is not None:
        raise _Diverged(str(difference))
    ended = host.episode is not None and host.episode.end is not None
    return None if ended else abandoned


async def _follow(host: Host, number: int, taken: StepTaken) -> replay.Difference | None:
    if taken.step != number:
        raise StepOutOfOrder(
            f"expected step {number}, got {taken.step}", expected=number, got=taken.step
        )
    again = await host.take(taken.step, taken.action, taken.turn)
    return replay.compare_step(taken, again.transition)
