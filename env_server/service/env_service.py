"""The EnvService: translates calls into what sessions do. The proto holds the contract."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, TypeVar

import grpc

from env_server import codec
from env_server.arguments import MAX_CHARACTERS, BadJson, BrokenJson, parse_object
from env_server.errors import BadPage, shown
from env_server.service.calls import Calls, bad_request, reset_response, shown_task
from env_server.service.identity import AgentTokens
from env_server.service.rollout import Rollout
from env_server.service.sessions import Sessions
from env_server.service.status import streaming, unary
from env_server.tasks import LEVELS
from railgym._version import __version__
from railgym.spaces import AS_THEY_ARE, MAX_OBSERVATION
from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]
Item = TypeVar("Item")

DEFAULT_PAGE = 100
MAX_PAGE = 1_000
BREAK_SECONDS = 0.02
"""A connection that breaks looks like a client that is done, until its call is cancelled."""

_TOKEN = re.compile("[1-9][0-9]{0,9}")


class EnvService(EnvServiceServicer):
    """See proto/railgym/v1/env_service.proto for the contract."""

    def __init__(self, sessions: Sessions, agents: AgentTokens) -> None:
        """Serves these sessions, and hands out tokens for them."""
        self.metrics = sessions.metrics
        self._sessions = sessions
        self._registry = sessions.registry
        self._agents = agents
        self._calls = Calls(sessions, agents)

    async def prepare(self) -> None:
        """Makes each environment once, to know what to say of it, and that it can be made.

        Raises:
            EnvError: One cannot.
        """
        for env_id in self._registry.envs:
            await self._calls.env_info(env_id)

    @unary
    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        """Tells what the server is, and its limits."""
        sessions, limits = self._sessions, self._sessions.limits
        return pb.GetServerInfoResponse(
            version=__version__,
            limits=pb.Limits(
                max_sessions=sessions.capacity,
                lease_seconds=sessions.lease_seconds,
                step_seconds=limits.step_seconds,
                max_message_bytes=limits.message_bytes,
                max_argument_characters=MAX_CHARACTERS,
                max_observation_characters=MAX_OBSERVATION,
                min_free_log_bytes=limits.free_log_bytes,
                max_concurrent_calls=limits.calls,
                max_env_bytes=limits.env_bytes,
            ),
            session_count=len(sessions),
            endpoint=sessions.endpoint,
        )

    @unary
    async def ListEnvs(self, request: pb.ListEnvsRequest, context: Context) -> pb.ListEnvsResponse:
        """Lists the environments."""
        envs = sorted(self._registry.envs)
        chosen, token = page(envs, request.page_size, request.page_token)
        infos = [await self._calls.env_info(env_id) for env_id in chosen]
        return pb.ListEnvsResponse(envs=infos, next_page_token=token)

    @unary
    async def ListTasks(
        self, request: pb.ListTasksRequest, context: Context
    ) -> pb.ListTasksResponse:
        """Lists tasks."""
        if request.env_id:
            self._registry.env(request.env_id)
        if request.level not in ("", *LEVELS):
            raise bad_request("level", " or ".join(LEVELS), request.level)
        tasks = [
            task
            for task in self._registry.tasks.values()
            if request.env_id in ("", task.env_id) and request.level in ("", task.level)
        ]
        chosen, token = page(tasks, request.page_size, request.page_token)
        return pb.ListTasksResponse(
            tasks=[codec.task_info(task) for task in chosen], next_page_token=token
        )

    @unary
    async def CreateSession(
        self, request: pb.CreateSessionRequest, context: Context
    ) -> pb.CreateSessionResponse:
        """Opens a session."""
        session = await self._calls.create(request)
        self._sessions.flush([session])
        return await self._calls.created(session)

    @unary
    async def Reset(self, request: pb.ResetRequest, context: Context) -> pb.ResetResponse:
        """Begins the next episode."""
        session = await self._sessions.find(request.session_id)
        self._sessions.journal.check()
        seed = request.seed if request.HasField("seed") else None
        options = codec.options_from_json(request.options_json)
        try:
            number, started = await session.reset(request.episode, seed, options)
        finally:
            self._sessions.flush([session])
        return reset_response(session.session_id, number, started)

    @unary
    async def Step(self, request: pb.StepRequest, context: Context) -> pb.StepResponse:
        """Applies one action."""
        session = await self._sessions.find(request.session_id)
        self._sessions.journal.check()
        try:
            transition = await session.step(
                request.episode, request.step, request.action, request.turn
            )
        finally:
            self._sessions.flush([session])
        return pb.StepResponse(transition=transition)

    @unary
    async def Render(self, request: pb.RenderRequest, context: Context) -> pb.RenderResponse:
        """Shows the current state."""
        session = await self._sessions.find(request.session_id)
        try:
            frame = await session.render()
        finally:
            self._sessions.flush([session])  # where it hangs, it ends its episode
        return pb.RenderResponse(frame=frame)

    @unary
    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Context
    ) -> pb.ForkSessionResponse:
        """Copies a session."""
        parent = await self._sessions.find(request.session_id)
        step = request.step if request.HasField("step") else None
        child = await self._sessions.fork(parent, step, dict(request.labels))
        self._sessions.flush([child])
        episode = child.player.running()
        return pb.ForkSessionResponse(
            session_id=child.session_id,
            episode_id=child.player.episode_id,
            step=episode.latest,
            state_hash=episode.state_hash,
            lease_seconds=self._sessions.lease_seconds,
            agent_token=self._agents.token(child.session_id),
        )

    @unary
    async def GetSession(
        self, request: pb.GetSessionRequest, context: Context
    ) -> pb.GetSessionResponse:
        """Tells where a session stands."""
        session = await self._sessions.find(request.session_id)
        player = session.player
        response = pb.GetSessionResponse(
            session_id=session.session_id,
            env_id=player.opening.entry.env_id,
            task=shown_task(player.opening),
            state=player.state,
            episode=player.number,
            lease_seconds=self._sessions.lease_seconds,
        )
        if player.opening.shaping != AS_THEY_ARE:
            response.env.CopyFrom(await self._calls.shown_info(player.opening))
        if player.episode is not None:
            response.step = player.records.latest
            response.state_hash = player.records.state_hash
        response.lease_expire_time.FromMilliseconds(int(session.expires_at() * 1_000))
        return response

    @unary
    async def RecordClaim(
        self, request: pb.RecordClaimRequest, context: Context
    ) -> pb.RecordClaimResponse:
        """Notes what the client says of its agent."""
        session = await self._sessions.find(request.session_id)
        try:
            parse_object(request.claim_json)
        except (BadJson, BrokenJson):
            got = shown(request.claim_json)
            raise bad_request("claim_json", "a JSON object of at most 64 KiB", got) from None
        self._sessions.journal.check()
        session.claim(request.claim_json)
        self._sessions.flush([session])
        return pb.RecordClaimResponse()

    @unary
    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Context
    ) -> pb.CloseSessionResponse:
        """Ends a session."""
        await self._calls.close(request.session_id, request.reason)
        return pb.CloseSessionResponse()

    @streaming
    async def Rollout(
        self, request_iterator: AsyncIterator[pb.RolloutRequest], context: Context
    ) -> AsyncGenerator[pb.RolloutResponse, None]:
        """Drives many sessions on one stream."""
        rollout = Rollout(self._calls, self._sessions)
        try:
            async for request in request_iterator:
                yield await rollout.answer(request)
            await asyncio.sleep(BREAK_SECONDS)
            await rollout.close()
        finally:
            rollout.abandon()


def page(items: Sequence[Item], size: int, token: str) -> tuple[Sequence[Item], str]:
    """Cuts one page out of a list.

    Args:
        items: The whole list.
        size: At most 1,000; 0: 100.
        token: Where the page begins, as the page before gave it.

    Returns:
        The page, and the token of the next one; empty on the last.

    Raises:
        BadPage: The token is not one of this list.
        BadRequest: The size is negative.
    """
    if size < 0:
        raise bad_request("page_size", f"0 to {MAX_PAGE}", size)
    if token and not (_TOKEN.fullmatch(token) and int(token) < len(items)):
        raise BadPage(
            f"expected a page token of this list, got {shown(token)}", page_token=token[:80]
        )
    start = int(token or 0)
    end = start + min(size or DEFAULT_PAGE, MAX_PAGE)
    return items[start:end], str(end) if end < len(items) else ""
