"""The chain of a session's records: each holds the hash of the one before it.

This module builds records. It knows nothing of files.
"""

from __future__ import annotations

import hashlib
import time
from typing import TypedDict, Unpack

from railgym.v1 import episode_pb2 as pb

_NANOS = 1_000_000_000


class Kind(TypedDict, total=False):
    """What a record says: exactly one of these."""

    session_opened: pb.SessionOpened
    episode_started: pb.EpisodeStarted
    step_taken: pb.StepTaken
    agent_claim: pb.AgentClaim
    episode_ended: pb.EpisodeEnded
    server_fault: pb.ServerFault
    session_closed: pb.SessionClosed


class Chain:
    """Builds the records of one session, in order.

    A record that could not be appended has no successor: set `sequence` and `previous` back to
    what they were before it.

    Attributes:
        session_id: The session.
        sequence: Of the next record.
        previous: SHA-256 of the latest record; empty before the first.
    """

    def __init__(self, session_id: str, sequence: int = 0, previous: bytes = b"") -> None:
        """Begins a chain, or goes on after the record with this hash and `sequence - 1`."""
        self.session_id = session_id
        self.sequence = sequence
        self.previous = previous

    def record(self, episode_id: str = "", **kind: Unpack[Kind]) -> bytes:
        """Makes the next record, as it is to be appended.

        Args:
            episode_id: Empty for what concerns the session as a whole.
            **kind: What happened, by the name of its field in `EpisodeEvent`.

        Raises:
            TypeError: Not exactly one kind was given.
        """
        if len(kind) != 1:
            raise TypeError(f"a record has one kind, got {sorted(kind)}")
        seconds, nanos = divmod(time.time_ns(), _NANOS)
        event = pb.EpisodeEvent(
            session_id=self.session_id,
            episode_id=episode_id,
            sequence=self.sequence,
            previous_sha256=self.previous,
            **kind,
        )
        event.time.seconds = seconds
        event.time.nanos = nanos
        payload = event.SerializeToString()
        self.sequence += 1
        self.previous = hashlib.sha256(payload).digest()
        return payload
