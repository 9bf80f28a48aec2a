"""What the unary calls and the rows of a Rollout share: from a request to its response.

Nothing here writes the log: whoever answers a client flushes the sessions first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from env_server import codec
from env_server.errors import BadRequest, EnvError, shown
from env_server.registry import EnvEntry
from env_server.service import caller
from env_server.service.hosting import EnvFailed
from env_server.service.identity import AgentTokens
from env_server.service.records import Opening
from env_server.service.session import Session
from env_server.service.sessions import Sessions
from env_server.shaping import tools_for
from env_server.tasks import Task
from railgym.codec import end_reason_from_proto
from railgym.spaces import AS_THEY_ARE, MAX_DISTRACTORS, ToolShaping
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2

MAX_LABELS = 32
MAX_REQUEST_ID_BYTES = 256
MAX_LABEL_BYTES = 256

RAILS = "rails"
"""The label that the server adds where tools are not shown as they are, so that reports tell."""

CLIENT_REASONS = ("client_closed", "time_limit", "api_error")
"""The ends that a client may give."""


class Calls:
    """Opens and closes sessions as requests ask for it."""

    def __init__(self, sessions: Sessions, agents: AgentTokens) -> None:
        """Answers for these sessions, and hands out tokens for them."""
        self._sessions = sessions
        self._agents = agents
        self._registry = sessions.registry
        self._infos: dict[tuple[str, str], pb.EnvInfo] = {}

    async def env_info(self, env_id: str, task: Task | None = None) -> pb.EnvInfo:
        """What a client may know of an environment, its tools limited to those of a task.

        Raises:
            EnvError: It cannot be made.
        """
        limiting = task if task is not None and task.allowed_tools else None
        key = env_id, limiting.task_id if limiting else ""  # tasks without limits share one
        if key not in self._infos:
            self._infos[key] = await self._make_info(self._registry.env(env_id), limiting)
        return self._infos[key]

    async def shown_info(self, opening: Opening) -> pb.EnvInfo:
        """What a client may know of a session's environment, with the tools that it shows.

        Raises:
            EnvError: It cannot be made.
        """
        entry, task, shaping = opening.entry, opening.task, opening.shaping
        info = await self.env_info(entry.env_id, task)
        if shaping == AS_THEY_ARE:
            return info
        shown = pb.EnvInfo()
        shown.CopyFrom(info)
        shown.action_space.CopyFrom(codec.tool_space(entry, task, shaping))
        return shown

    async def create(self, request: pb.CreateSessionRequest) -> Session:
        """Opens the session that a request asks for; its record is pending."""
        _check_labels(request.labels)
        check_enum("argument_rule", request.argument_rule, episode_pb2.ArgumentRule.values())
        size = len(request.request_id.encode())
        if size > MAX_REQUEST_ID_BYTES:
            expected = f"at most {MAX_REQUEST_ID_BYTES} bytes"
            raise bad_request("request_id", expected, f"{size} bytes")
        task = self._registry.task(request.task_id) if request.task_id else None
        env_id = request.env_id or (task.env_id if task else "")
        if not env_id:
            raise bad_request("env_id", "an env_id or a task_id", "neither")
        entry = self._registry.env(env_id)
        if task is not None and task.env_id != env_id:
            raise bad_request("env_id", f"{task.env_id}, for task {task.task_id}", env_id)
        await self.env_info(env_id, task)  # first, since it fails where the environment does
        rule = codec.rule_from_proto(request.argument_rule)
        shaping = _shaping(request, entry)
        tenant = caller.operator().tenant
        labels = dict(request.labels)
        if shaping != AS_THEY_ARE:
            labels[RAILS] = str(shaping)
        opening = Opening(entry, task, labels, rule, tenant, shaping)
        return await self._sessions.create(opening, request.request_id)

    async def created(self, session: Session) -> pb.CreateSessionResponse:
        """Tells a client of its new session."""
        opening = session.player.opening
        return pb.CreateSessionResponse(
            session_id=session.session_id,
            lease_seconds=self._sessions.lease_seconds,
            env=await self.shown_info(opening),
            task=shown_task(opening),
            agent_token=self._agents.token(session.session_id),
            endpoint=self._sessions.endpoint,
        )

    async def close(self, session_id: str, reason: episode_pb2.EndReason.ValueType) -> None:
        """Ends a session for a reason that a client may give."""
        word = end_reason_from_proto(reason) if reason else "client_closed"
        if word is None or word not in CLIENT_REASONS:
            raise bad_request("reason", ", ".join(CLIENT_REASONS), word or str(reason))
        await self._sessions.close(session_id, word)

    async def _make_info(self, entry: EnvEntry, task: Task | None) -> pb.EnvInfo:
        host = self._sessions.hosts.host(entry, task, {})
        try:
            return await host.info(self._registry.task_count(entry.env_id))
        except EnvFailed as e:
            raise EnvError(
                f"environment {entry.env_id} cannot be made; the trace stands in the server's log",
                env_id=entry.env_id,
            ) from e
        finally:
            host.end()


def shown_task(opening: Opening) -> episode_pb2.TaskInfo | None:
    """What a client may know of a session's task; it names tools as the session shows them.

    Where the task allows few, distractors are among them: nothing tells them apart.
    """
    entry, task, shaping = opening.entry, opening.task, opening.shaping
    if task is None:
        return None
    info = codec.task_info(task)
    if task.allowed_tools and shaping != AS_THEY_ARE:
        tools = tools_for(entry.env_class, tuple(task.allowed_tools), shaping)
        info.allowed_tools[:] = [tool.name for tool in tools]
    return info


def reset_response(
    session_id: str, number: int, started: episode_pb2.EpisodeStarted
) -> pb.ResetResponse:
    """Tells a client of the episode that has begun."""
    return pb.ResetResponse(
        episode_id=f"{session_id}.{number}",
        episode=number,
        observation=started.observation,
        info=started.info,
        state_hash=started.state_hash,
        seed=started.seed if started.HasField("seed") else None,
    )


def _shaping(request: pb.CreateSessionRequest, entry: EnvEntry) -> ToolShaping:
    shaping = codec.shaping_from_proto(request.tool_shaping)
    if shaping.distractors > MAX_DISTRACTORS:
        expected = f"at most {MAX_DISTRACTORS}"
        raise bad_request("tool_shaping.distractors", expected, shaping.distractors)
    if shaping != AS_THEY_ARE and entry.is_plain:
        raise bad_request("tool_shaping", "none, for an environment without tools", str(shaping))
    return shaping


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        raise bad_request("labels", f"at most {MAX_LABELS}", len(labels))
    for key, value in labels.items():
        size = max(len(key.encode()), len(value.encode()))
        if size > MAX_LABEL_BYTES:
            raise bad_request("labels", f"at most {MAX_LABEL_BYTES} bytes each", f"{size} bytes")


def check_enum(field: str, value: int, known: Collection[int]) -> None:
    """Makes sure that a value of an enum is one that this server knows.

    Raises:
        BadRequest: It is not.
    """
    if value not in known:
        raise bad_request(field, f"one of {', '.join(map(str, known))}", value)


def bad_request(field: str, expected: object, got: object) -> BadRequest:
    """The error for a field of a request: what was expected and what came."""
    text = got if isinstance(got, str) else json.dumps(got)
    return BadRequest(
        f"{field}: expected {expected}, got {shown(text)}",
        field=field,
        expected=expected,
        got=text[:200],
    )
