"""Puts the records of a log together into episodes, and finds what is wrong with each.

The records of one session are a chain: each holds a number and the hash of the one before it. A
break in it concerns the episode in which it lies, and no other. Held in memory are, of each
session that has not closed, the episode that runs, and the ids of those that have. Nothing is
replayed here: whether a record tells the truth is found out by `env_server.scoring`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from env_server.log import frames
from env_server.log.frames import Damage
from env_server.log.logged import LoggedEpisode, Problem
from env_server.log.reader import Record, read
from railgym.v1 import episode_pb2 as pb

_REPEATED = "stands again, or out of order"
_SESSION_ID_TAG = pb.EpisodeEvent.SESSION_ID_FIELD_NUMBER << 3 | 2


def episodes(path: Path) -> Iterator[LoggedEpisode]:
    """Reads the episodes of a log, each as soon as nothing more can be said of it.

    Args:
        path: A directory of segments, or one segment.

    Yields:
        An episode when its session goes on to the next one or closes; those that run, at the end.

    Raises:
        NotALog: There is nothing at the path, or something else than a log.
    """
    return group(read(path))


def group(records: Iterable[Record | Damage]) -> Iterator[LoggedEpisode]:
    """Puts records together into episodes, for instance those of one session."""
    log = _Log()
    for item in records:
        if isinstance(item, Damage):
            log.lose(item)
        else:
            yield from log.take(item)
    yield from log.finish()


class _Lost(NamedTuple):
    """Damage that no gap in a chain explains so far."""

    damage: Damage
    session_id: str  # as far as it can be read
    order: int  # of the record before it


class _Log:
    """The sessions of a log, and the damage in it."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._closed: set[str] = set()
        self._strayed: set[str] = set()
        self._lost: list[_Lost] = []
        self._order = 0

    def lose(self, damage: Damage) -> None:
        """Notes damage."""
        self._lost.append(_Lost(damage, _readable_session(damage), self._order))

    def take(self, record: Record) -> Iterator[LoggedEpisode]:
        """Takes the next record, and yields what is complete with it."""
        self._order += 1
        event = record.event
        if event.session_id in self._closed:
            yield from self._stray(record, "stands after the end of the session")
            return
        session = self._sessions.get(event.session_id)
        if session is None:
            session = self._sessions[event.session_id] = _Session(event.session_id)
        if event.sequence < session.sequence:
            if not session.repeats(record, _REPEATED):
                yield from self._stray(record, _REPEATED)
            return
        if event.sequence > session.sequence:
            yield from session.gap(record, self._explain(session))
        elif event.previous_sha256 != session.previous:
            yield from session.altered(record)
        yield from session.add(record, self._order)
        if event.HasField("session_closed"):
            yield from session.complete()
            self._closed.add(event.session_id)
            del self._sessions[event.session_id]

    def finish(self) -> Iterator[LoggedEpisode]:
        """Yields the episodes that have not ended, and the damage that concerns no other."""
        for damage, session_id, _ in self._lost:
            session = self._sessions.get(session_id)
            if session and session.runs():
                session.lose_latest(damage)
            else:
                known = session or session_id in self._closed
                yield _nobody(session_id if known else "", damage.reason, damage.place)
        for session in self._sessions.values():
            yield from session.complete()

    def _stray(self, record: Record, why: str) -> Iterator[LoggedEpisode]:
        """Reports a record that hits no episode in reach: once for each session."""
        session_id = record.event.session_id
        if session_id not in self._strayed:
            self._strayed.add(session_id)
            yield _nobody(session_id, f"{_name(record.event)} {why}", record.place)

    def _explain(self, session: _Session) -> Damage | None:
        """Finds the damage that made a gap: of that session, or unreadable and in the gap."""
        own = (lost for lost in self._lost if lost.session_id == session.session_id)
        unreadable = (
            lost
            for lost in self._lost
            if lost.order >= session.order
            and lost.session_id not in self._sessions
            and lost.session_id not in self._closed
        )
        lost = next(own, None) or next(unreadable, None)
        if lost is None:
            return None
        self._lost.remove(lost)
        return lost.damage


class _Session:
    """One session: where its chain stands, and the episode that runs.

    Attributes:
        session_id: The session.
        sequence: That the next record should have.
        order: Of the latest record among all records of the log.
    """

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.sequence = 0
        self.order = 0
        self._latest: Record | None = None
        self._episode: LoggedEpisode | None = None

    @property
    def previous(self) -> bytes:
        """The hash that the next record should name."""
        return self._latest.sha256 if self._latest else b""

    def runs(self) -> bool:
        """Whether there is an episode without an end."""
        return self._episode is not None and self._episode.ended is None

    def add(self, record: Record, order: int) -> Iterator[LoggedEpisode]:
        """Takes a record into its episode, and yields the one before where it begins another."""
        event = record.event
        self._latest, self.sequence, self.order = record, event.sequence + 1, order
        if event.episode_id and event.WhichOneof("kind"):
            episode = yield from self._enter(event.episode_id)
            episode.add(record)

    def complete(self) -> Iterator[LoggedEpisode]:
        """Yields the episode in which nothing follows, if there is one."""
        if self._episode:
            yield self._episode
        self._episode = None

    def repeats(self, record: Record, why: str) -> bool:
        """Flags a record that stands out of order; False: it is not of this episode."""
        episode = self._episode_of(record.event)
        if episode:
            reason = f"{_name(record.event)} {why}"
            episode.flag(_step(record.event, episode), reason, record.place)
        return episode is not None

    def gap(self, record: Record, damage: Damage | None) -> Iterator[LoggedEpisode]:
        """Flags the episodes that miss records before this one, or else the session."""
        event = record.event
        reason = f"expected record {self.sequence} of the session, got record {event.sequence}"
        if damage:
            reason = f"{damage.reason}; {reason}"
        place = damage.place if damage else record.place
        hits = self._episode if self.runs() else self._episode_of(event)
        if hits:
            hits.flag(_missing_step(hits, event), reason, place)
        begins = event.WhichOneof("kind") in (None, "episode_started")
        if event.episode_id and not begins and not self._episode_of(event):
            hits = yield from self._enter(event.episode_id)
            hits.flag(0, reason, place)
        if not hits:
            yield _nobody(self.session_id, reason, place)

    def altered(self, record: Record) -> Iterator[LoggedEpisode]:
        """Flags the latest record, whose hash is not the one that this record names."""
        if self._latest is None:
            reason = "the first record of the session names one before it"
            yield _nobody(self.session_id, reason, record.place)
            return
        event = self._latest.event
        reason = f"{_name(event)} is not the one that the next record follows: its hash differs"
        episode = self._episode_of(event)
        if episode:
            episode.flag(_step(event, episode), reason, self._latest.place)
        else:
            yield _nobody(self.session_id, reason, self._latest.place)

    def lose_latest(self, damage: Damage) -> None:
        """Flags the episode whose latest records are damaged."""
        if self._episode:
            self._episode.flag(_missing_step(self._episode, None), damage.reason, damage.place)

    def _episode_of(self, event: pb.EpisodeEvent) -> LoggedEpisode | None:
        """The latest episode, if the record is one of its records."""
        same = self._episode and self._episode.episode_id == event.episode_id
        return self._episode if same else None

    def _enter(self, episode_id: str) -> Generator[LoggedEpisode, None, LoggedEpisode]:
        """Returns the episode; where it is another than the latest, yields that one."""
        if self._episode is None or self._episode.episode_id != episode_id:
            yield from self.complete()
            self._episode = LoggedEpisode(episode_id, self.session_id)
        return self._episode


def _nobody(session_id: str, reason: str, place: str) -> LoggedEpisode:
    """Stands for what is wrong outside of the episodes."""
    return LoggedEpisode("", session_id, problem=Problem(0, reason, place))


def _name(event: pb.EpisodeEvent) -> str:
    """What a record is, for messages."""
    kind = event.WhichOneof("kind")
    if kind == "step_taken":
        what = f"step {event.step_taken.step}"
    else:
        what = kind.replace("_", " ") if kind else "of an unknown kind"
    return f"record {event.sequence} of the session ({what})"


def _step(event: pb.EpisodeEvent, episode: LoggedEpisode) -> int:
    """The step that a record of an episode concerns."""
    match event.WhichOneof("kind"):
        case "step_taken":
            return event.step_taken.step
        case "episode_started":
            return 0
        case _:
            return episode.latest


def _missing_step(episode: LoggedEpisode, following: pb.EpisodeEvent | None) -> int:
    """The step that is missing before a record, or the latest one where none is."""
    latest = episode.latest
    if following and following.episode_id == episode.episode_id:
        complete = following.HasField("step_taken") and following.step_taken.step == latest + 1
    else:
        complete = False
    if episode.steps:
        transition = episode.steps[-1].transition
        complete |= transition.terminated or transition.truncated or transition.end_reason != 0
    return latest if complete else latest + 1


def _readable_session(damage: Damage) -> str:
    """The session id in a damaged record, for it is the first field; empty: cannot be read."""
    with damage.path.open("rb") as file:
        file.seek(damage.offset + frames.HEADER_SIZE)
        head = file.read(2 + 127)
    if len(head) < 2 or head[0] != _SESSION_ID_TAG or head[1] > 127:
        return ""
    return head[2 : 2 + head[1]].decode("utf-8", errors="replace")
