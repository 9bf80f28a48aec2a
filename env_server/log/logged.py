"""An episode as the log has it: its records, and what is wrong with them.

This module knows nothing of how records are found: see `episodes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from env_server.log.reader import Record
from railgym.v1 import episode_pb2 as pb


class Problem(NamedTuple):
    """What is wrong with an episode's records: the first thing that is.

    Attributes:
        step: The step that is missing, double or altered; 0 is the start of the episode. Where
            another record is, the latest step before it.
        reason: In words.
        place: FILE:OFFSET of the damage, or of the record that shows the problem.
    """

    step: int
    reason: str
    place: str


@dataclass(slots=True)
class LoggedEpisode:
    """The records of one episode.

    Where something is wrong between the episodes of a session, or is nobody's, an entry with a
    problem and without records stands for it: its `episode_id` is empty, and so is its
    `session_id` where even that is not known.

    Attributes:
        episode_id: "SESSION_ID.N".
        session_id: The session.
        start_time: Of the first record, in nanoseconds since 1970 (UTC).
        started: None: the record is missing, or the environment failed before it.
        steps: In the order of the log.
        step_times: One for each step, as `start_time`.
        claims: In the order of the log.
        faults: In the order of the log.
        ended: None: the episode runs, or its server died.
        problem: None: the records are whole, in order and linked.
    """

    episode_id: str
    session_id: str
    start_time: int = 0
    started: pb.EpisodeStarted | None = None
    steps: list[pb.StepTaken] = field(default_factory=list)
    step_times: list[int] = field(default_factory=list)
    claims: list[pb.AgentClaim] = field(default_factory=list)
    faults: list[pb.ServerFault] = field(default_factory=list)
    ended: pb.EpisodeEnded | None = None
    problem: Problem | None = None

    @property
    def latest(self) -> int:
        """Number of the latest step; 0: none."""
        return self.steps[-1].step if self.steps else 0

    def flag(self, step: int, reason: str, place: str) -> None:
        """Notes a problem, unless there is an earlier one."""
        self.problem = self.problem or Problem(step, reason, place)

    def add(self, record: Record) -> None:
        """Takes the next record of the episode, and checks that it may stand here.

        Kinds that are not known here are left out.
        """
        event = record.event
        nanos = event.time.seconds * 1_000_000_000 + event.time.nanos
        self.start_time = self.start_time or nanos
        match event.WhichOneof("kind"):
            case "episode_started":
                self._start(event.episode_started, record)
            case "step_taken":
                self._step(event.step_taken, record)
                self.step_times.append(nanos)
            case "agent_claim":
                self.claims.append(event.agent_claim)
            case "server_fault":
                self.faults.append(event.server_fault)
            case "episode_ended":
                if self.ended:
                    self.flag(self.latest, "it ends twice", record.place)
                self.ended = event.episode_ended

    def _start(self, started: pb.EpisodeStarted, record: Record) -> None:
        if self.started or self.steps or self.ended:
            self.flag(0, "its start stands after another of its records", record.place)
        self.started = started

    def _step(self, taken: pb.StepTaken, record: Record) -> None:
        expected = self.latest + 1
        if not self.started:
            self.flag(0, f"its start is missing before step {taken.step}", record.place)
        if taken.step != expected:
            wrong = min(taken.step, expected)
            self.flag(wrong, f"expected step {expected}, got step {taken.step}", record.place)
        if self.ended:
            self.flag(taken.step, f"step {taken.step} stands after its end", record.place)
        self.steps.append(taken)
