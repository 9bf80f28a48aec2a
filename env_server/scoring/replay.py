"""Replay: a log is run again and compared with itself, and nothing in it is trusted.

The same `Episode` that ran live is driven by the logged actions. Every observation, reward, flag,
info, end and state hash is recomputed; the first one that differs ends the replay. It knows no
metric and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from env_server import codec
from env_server.arguments import BadJson, BrokenJson, canonical_json
from env_server.episode import Episode, Reply
from env_server.errors import RailgymError, UnknownEnv, UnknownTask
from env_server.registry import EnvEntry, Registry
from env_server.tasks import Task
from railgym.codec import end_reason_from_proto, info_to_proto
from railgym.v1 import episode_pb2

Recorded: TypeAlias = episode_pb2.EpisodeStarted | episode_pb2.Transition

START_FIELDS = ("tools_sha256", "observation", "info", "state_hash")
"""What of an `EpisodeStarted` follows from the rest of it."""

OWN_ENDS = frozenset({"final", "goal", "max_steps"})
"""Ends that follow from the actions; the others come from outside."""


class Outcome(StrEnum):
    """What became of a replay."""

    VERIFIED = "VERIFIED"
    DIVERGED = "DIVERGED"
    UNREPLAYABLE = "UNREPLAYABLE"


class Unreplayable(Exception):
    """The record cannot be run."""

    def __init__(self, message: str, step: int = 0) -> None:
        """Keeps why, and the step that cannot be taken, 0 for the reset."""
        super().__init__(message)
        self.step = step


class Difference(NamedTuple):
    """Where a recomputed episode differs from its record.

    Attributes:
        step: 0 for the reset.
        field: For instance "reward", "observation", "state_hash".
        recorded: As it stands in the log, cut to 200 characters.
        recomputed: As the replay has it, cut to 200 characters.
    """

    step: int
    field: str
    recorded: str
    recomputed: str

    @property
    def detail(self) -> str:
        """The field, what was recorded and what came."""
        return f"{self.field}: recorded {self.recorded}, recomputed {self.recomputed}"

    def __str__(self) -> str:
        """The step and its detail."""
        return f"step {self.step}: {self.detail}"


def begin(
    started: episode_pb2.EpisodeStarted, registry: Registry
) -> tuple[Episode, EnvEntry, Difference | None]:
    """Begins an episode again from its first record.

    Returns:
        The episode at step 0, its environment's entry, and the first difference.

    Raises:
        Unreplayable: The environment or the task is not there, is another one than was recorded,
            or does not take the options.
    """
    entry, task = find(started, registry)
    try:
        spec = codec.spec_from_started(started, task)
        episode = Episode(spec, entry.make())
    except (BadJson, BrokenJson, RailgymError, ValueError, TypeError, KeyError) as e:
        raise Unreplayable(f"cannot begin: {e}") from None
    return episode, entry, compare_start(started, _start(episode))


def find(started: episode_pb2.EpisodeStarted, registry: Registry) -> tuple[EnvEntry, Task | None]:
    """Finds the environment and the task of an episode from its first record.

    Raises:
        Unreplayable: One is not there, or is another one than was recorded.
    """
    try:
        entry = registry.env(started.env_id)
        task = registry.task(started.task_id) if started.task_id else None
    except (UnknownEnv, UnknownTask) as e:
        raise Unreplayable(str(e)) from None
    if task is not None and task.env_id != started.env_id:
        raise Unreplayable(f"task {task.task_id} is one of {task.env_id}, not {started.env_id}")
    if task is not None and task.sha256 != started.task_sha256:
        raise Unreplayable(
            f"task {task.task_id} has changed: recorded {started.task_sha256[:12]}, "
            f"here {task.sha256[:12]}"
        )
    return entry, task


def compare_start(
    recorded: episode_pb2.EpisodeStarted, recomputed: episode_pb2.EpisodeStarted
) -> Difference | None:
    """The first difference between two beginnings of one episode."""
    return _difference(0, START_FIELDS, recorded, recomputed)


def follow(
    episode: Episode, entry: EnvEntry, taken: episode_pb2.StepTaken
) -> tuple[Reply, Difference | None]:
    """Takes a recorded step again.

    Returns:
        The recomputed reply, and the first difference.

    Raises:
        Unreplayable: The step is out of order, after the end, or of a kind that the environment
            does not take.
    """
    expected = episode.latest + 1
    if taken.step != expected:
        raise Unreplayable(f"expected step {expected}, got {taken.step}", expected)
    try:
        action = codec.action_from_proto(taken.action, entry, episode.env.action_space)
        reply = episode.step(taken.step, action)
    except RailgymError as e:
        raise Unreplayable(f"step {taken.step}: {e}", taken.step) from None
    return reply, compare_step(taken, codec.reply_to_proto(reply, episode.env))


def compare_step(
    taken: episode_pb2.StepTaken, recomputed: episode_pb2.Transition
) -> Difference | None:
    """The first difference between a recorded step and what it came to again."""
    if recomputed == taken.transition:
        return None
    fields = recomputed.DESCRIPTOR.fields_by_name
    return _difference(taken.step, fields, taken.transition, recomputed)


def finish(episode: Episode, ended: episode_pb2.EpisodeEnded) -> Difference | None:
    """Compares the recorded end with the one that was recomputed.

    An end that comes from outside (a limit of time, a client that left) cannot be recomputed: it
    stands as it is, as long as the episode had not ended by itself.

    Returns:
        The first difference.
    """
    recorded, own = end_reason_from_proto(ended.reason) or "none", episode.end or "none"
    if recorded != own and (own != "none" or recorded in OWN_ENDS):
        return Difference(episode.latest, "end_reason", recorded, own)
    if ended.state_hash != episode.state_hash:
        state_hash = ended.state_hash.hex(), episode.state_hash.hex()
        return Difference(episode.latest, "state_hash", *state_hash)
    return None


def _start(episode: Episode) -> episode_pb2.EpisodeStarted:
    return episode_pb2.EpisodeStarted(
        tools_sha256=episode.tools_sha256,
        observation=codec.start_observation(episode),
        info=info_to_proto(episode.start.info),
        state_hash=episode.start.state_hash,
    )


def _difference(
    step: int, fields: Iterable[str], recorded: Recorded, recomputed: Recorded
) -> Difference | None:
    """The first field that differs, NaN being equal to itself."""
    for field in fields:
        if getattr(recorded, field) != getattr(recomputed, field):
            one, other = _shown(recorded, field), _shown(recomputed, field)
            if one != other:
                return Difference(step, field, one[:200], other[:200])
    return None


def _shown(message: Recorded, field: str) -> str:
    value = getattr(message, field)
    if field == "info":
        return canonical_json({key: str(value[key]) for key in value})
    if field == "observation":
        return str(value.json) if value.WhichOneof("kind") == "json" else str(value)
    return value.hex() if isinstance(value, bytes) else str(value)
