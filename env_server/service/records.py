"""The records of one session, in order, until they are in the log.

It knows what a record looks like, and neither when one is due nor how it comes to the disk.
"""

from __future__ import annotations

from typing import NamedTuple, Unpack

from env_server import codec
from env_server.episode import Rule
from env_server.log import Chain, Kind
from env_server.registry import EnvEntry
from env_server.tasks import Task
from railgym.codec import end_reason_to_proto
from railgym.spaces import AS_THEY_ARE, ToolShaping
from railgym.v1 import episode_pb2


class Opening(NamedTuple):
    """What a session is opened for.

    Attributes:
        entry: The environment.
        task: The task, or None.
        labels: Copied into every EpisodeStarted; not to be changed.
        rule: How strictly arguments are read.
        tenant: Whose it is; empty: the server knows no tenants.
        shaping: How tools are shown.
    """

    entry: EnvEntry
    task: Task | None
    labels: dict[str, str]
    rule: Rule
    tenant: str = ""
    shaping: ToolShaping = AS_THEY_ARE


class Records:
    """Makes records, and keeps those that are not in the log yet.

    Attributes:
        session_id: The session.
        pending: Records that are not in the log yet.
        latest: Steps of the latest episode that were noted.
        state_hash: Of the state after them.
    """

    def __init__(self, chain: Chain) -> None:
        """Begins a chain, or goes on with it."""
        self.session_id = chain.session_id
        self.pending: list[bytes] = []
        self._chain = chain
        self.latest = 0
        self.state_hash = b""

    def open(self, opening: Opening, lease_seconds: float, request_id: str) -> None:
        """Notes that the session was opened."""
        entry, task, labels, rule, tenant, shaping = opening
        opened = episode_pb2.SessionOpened(
            env_id=entry.env_id,
            task_id="" if task is None else task.task_id,
            labels=labels,
            argument_rule=codec.rule_to_proto(rule),
            lease_seconds=lease_seconds,
            request_id=request_id,
            tenant=tenant,
            tool_shaping=codec.shaping_to_proto(shaping),
        )
        self.pending.append(self._chain.record(session_opened=opened))

    def start(self, number: int, started: episode_pb2.EpisodeStarted) -> None:
        """Notes that an episode has begun."""
        self.latest, self.state_hash = 0, started.state_hash
        self._add(number, episode_started=started)

    def step(self, number: int, taken: episode_pb2.StepTaken) -> None:
        """Notes a step."""
        self.latest, self.state_hash = taken.step, taken.transition.state_hash
        self._add(number, step_taken=taken)

    def claim(self, number: int, claim_json: str) -> None:
        """Notes what the client says of its agent."""
        self._add(number, agent_claim=episode_pb2.AgentClaim(claim_json=claim_json))

    def fault(self, number: int, error: str) -> None:
        """Notes that the server failed."""
        self._add(number, server_fault=episode_pb2.ServerFault(error=error))

    def end(self, number: int, reason: str) -> None:
        """Notes that an episode ended, in the state after its latest step."""
        end = end_reason_to_proto(reason)
        self._add(
            number,
            episode_ended=episode_pb2.EpisodeEnded(reason=end, state_hash=self.state_hash),
        )

    def close(self, reason: str) -> None:
        """Notes that the session ended."""
        closed = episode_pb2.SessionClosed(reason=end_reason_to_proto(reason))
        self.pending.append(self._chain.record(session_closed=closed))

    def _add(self, number: int, **kind: Unpack[Kind]) -> None:
        self.pending.append(self._chain.record(f"{self.session_id}.{number}", **kind))
