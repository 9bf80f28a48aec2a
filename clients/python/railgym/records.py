"""What a server says of its environments, tasks and episodes, as plain tuples."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import gymnasium

from railgym.codec import end_reason_from_proto, space_from_proto
from railgym.spaces import ToolSpace, ToolSpec
from railgym.v1 import env_service_pb2, episode_pb2, episode_service_pb2


class EnvInfo(NamedTuple):
    """An environment that a server hosts.

    Attributes:
        env_id: Its id.
        env_version: Where its code comes from, for instance "railgym 0.1.0".
        description: In words for people.
        action_space: A `ToolSpace` for tool environments.
        observation_space: Text for tool environments: their observations are JSON.
        options_schema: JSON Schema of the reset options; None where the environment does not say.
        task_count: How many tasks there are.
        render_modes: Gymnasium's.
    """

    env_id: str
    env_version: str
    description: str
    action_space: gymnasium.Space[Any]
    observation_space: gymnasium.Space[Any]
    options_schema: dict[str, Any] | None
    task_count: int
    render_modes: tuple[str, ...]

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools to tell a model of; none for a plain environment."""
        return self.action_space.tools if isinstance(self.action_space, ToolSpace) else ()


class TaskInfo(NamedTuple):
    """What a client may know of a task.

    Attributes:
        task_id: Its id.
        env_id: Its environment.
        level: "L1", "L2" or "L3".
        instruction: The goal, in words for the agent.
        max_steps: The step at which an episode is cut off.
        allowed_tools: By name; empty: every tool of the environment.
        tags: Any words.
        sha256: Of the task; equal digests mean the same task.
    """

    task_id: str
    env_id: str
    level: str
    instruction: str
    max_steps: int
    allowed_tools: tuple[str, ...]
    tags: tuple[str, ...]
    sha256: str


class EpisodeInfo(NamedTuple):
    """An episode of a server's log.

    Attributes:
        episode_id: "SESSION_ID.N".
        env_id: Its environment.
        task_id: Its task; empty: none.
        labels: As the session was given.
        start_time: By the server's clock, in UTC.
        steps: Steps in the log.
        end_reason: Why it ended, for instance "final"; None while it runs.
    """

    episode_id: str
    env_id: str
    task_id: str
    labels: dict[str, str]
    start_time: datetime
    steps: int
    end_reason: str | None


class Limits(NamedTuple):
    """What a server holds clients to. 0: no limit.

    Attributes:
        max_sessions: Sessions at once, of the worker that was asked.
        lease_seconds: Of idleness, until a session expires.
        step_seconds: Of one reset, step or render of an environment that is not Railgym's own.
        max_message_bytes: Of one message in either direction.
        max_argument_characters: Of the arguments of one call.
        max_observation_characters: Of one JSON observation.
        min_free_log_bytes: That must be free on the disk of the log, or steps are refused.
        max_concurrent_calls: Calls at work at once, of the worker that was asked.
        max_env_bytes: Memory of the process of an environment that is not Railgym's own.
    """

    max_sessions: int
    lease_seconds: float
    step_seconds: float
    max_message_bytes: int
    max_argument_characters: int
    max_observation_characters: int
    min_free_log_bytes: int
    max_concurrent_calls: int
    max_env_bytes: int


class ServerInfo(NamedTuple):
    """A server, or one of its workers.

    Attributes:
        version: Of Railgym.
        limits: What it holds clients to.
        session_count: Sessions that are open.
        endpoint: Where it is reached directly, "host:port"; empty: where it was asked.
    """

    version: str
    limits: Limits
    session_count: int
    endpoint: str


def server_from_proto(message: env_service_pb2.GetServerInfoResponse) -> ServerInfo:
    """Reads what a server says of itself."""
    limits = Limits(*(getattr(message.limits, field) for field in Limits._fields))
    return ServerInfo(message.version, limits, message.session_count, message.endpoint)


def env_from_proto(message: env_service_pb2.EnvInfo) -> EnvInfo:
    """Reads an environment.

    Raises:
        ValueError: A space is of a kind that this client does not know.
    """
    schema = message.options_schema_json
    return EnvInfo(
        env_id=message.env_id,
        env_version=message.env_version,
        description=message.description,
        action_space=space_from_proto(message.action_space),
        observation_space=space_from_proto(message.observation_space),
        options_schema=json.loads(schema) if schema else None,
        task_count=message.task_count,
        render_modes=tuple(message.render_modes),
    )


def limited_to(env: EnvInfo, task: TaskInfo | None) -> EnvInfo:
    """The environment with no other tools than a task allows."""
    if task is None or not task.allowed_tools:
        return env
    tools = [tool for tool in env.tools if tool.name in task.allowed_tools]
    return env._replace(action_space=ToolSpace(tools))


def task_from_proto(message: episode_pb2.TaskInfo) -> TaskInfo:
    """Reads a task."""
    return TaskInfo(
        task_id=message.task_id,
        env_id=message.env_id,
        level=message.level,
        instruction=message.instruction,
        max_steps=message.max_steps,
        allowed_tools=tuple(message.allowed_tools),
        tags=tuple(message.tags),
        sha256=message.sha256,
    )


def episode_from_proto(message: episode_service_pb2.EpisodeInfo) -> EpisodeInfo:
    """Reads an episode."""
    return EpisodeInfo(
        episode_id=message.episode_id,
        env_id=message.env_id,
        task_id=message.task_id,
        labels=dict(message.labels),
        start_time=message.start_time.ToDatetime(UTC),
        steps=message.step,
        end_reason=end_reason_from_proto(message.end_reason),
    )
