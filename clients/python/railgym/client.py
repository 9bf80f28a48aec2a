"""A client of one server: what there is, and sessions to play it.

with railgym.connect("localhost:50051") as client:
    with client.session(task_id="typewriter/reference/dog") as session:
        observation, info = session.reset()
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from grpc_health.v1 import health_pb2, health_pb2_grpc

from railgym._grpc import grpc
from railgym.connection import Connection
from railgym.credentials import File
from railgym.records import (
    EnvInfo,
    EpisodeInfo,
    ServerInfo,
    TaskInfo,
    env_from_proto,
    episode_from_proto,
    limited_to,
    server_from_proto,
    task_from_proto,
)
from railgym.route import Route
from railgym.scores import EpisodeScore, score_from_proto
from railgym.session import Session
from railgym.spaces import AS_THEY_ARE, ToolShaping
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2
from railgym.v1 import episode_service_pb2 as episode_service

PAGE_SIZE = 1_000

RULES = {
    "strict": episode_pb2.ARGUMENT_RULE_STRICT,
    "lenient": episode_pb2.ARGUMENT_RULE_LENIENT,
}


def connect(
    address: str = "localhost:50051",
    *,
    timeout_seconds: float = 60.0,
    patience_seconds: float = 30.0,
    startup_seconds: float = 0.0,
    credentials: grpc.ChannelCredentials | None = None,
    token: str | None = None,
    tls_ca: File | None = None,
    tls_cert: File | None = None,
    tls_key: File | None = None,
    options: Sequence[tuple[str, Any]] = (),
) -> Client:
    """Makes a client. Nothing is sent before its first call.

    Args:
        address: "host:port", or any other target of gRPC.
        timeout_seconds: Deadline of a call.
        patience_seconds: How long a call waits for a server that has been there before and is
            gone, for instance because it restarts. Calls that cannot be repeated do not wait.
        startup_seconds: How long the first call waits for a server that is not there yet.
        credentials: For TLS; None: as the files below say.
        token: An operator's, or that of a session's agent. Sent with every call, in clear where
            there is no TLS.
        tls_ca: PEM file of who signed the server's certificate; None: in clear.
        tls_cert: PEM file of a certificate of your own, for mutual TLS.
        tls_key: PEM file of its private key.
        options: Further channel options of gRPC, which win over the client's own.
    """
    return Client(
        Connection(
            address,
            timeout_seconds=timeout_seconds,
            patience_seconds=patience_seconds,
            startup_seconds=startup_seconds,
            credentials=credentials,
            token=token,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
            options=options,
        )
    )


class Client:
    """A client of one server. Use as a context manager. Threads may share it.

    Every method raises a `RailgymError` where the server refuses or does not answer.
    """

    def __init__(self, connection: Connection) -> None:
        """Uses this connection; see `railgym.connect`."""
        self._connection = connection

    @property
    def address(self) -> str:
        """The server's address."""
        return self._connection.address

    def server_info(self) -> ServerInfo:
        """What the server is, and the limits that it holds clients to."""
        rpc = self._connection.envs.GetServerInfo
        return server_from_proto(self._connection.ask(rpc, pb.GetServerInfoRequest()))

    def envs(self) -> list[EnvInfo]:
        """The environments that the server hosts."""
        rpc = self._connection.envs.ListEnvs
        found: list[EnvInfo] = []
        request = pb.ListEnvsRequest(page_size=PAGE_SIZE)
        while True:
            page = self._connection.ask(rpc, request)
            found += [env_from_proto(env) for env in page.envs]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def tasks(self, env_id: str | None = None, level: str | None = None) -> list[TaskInfo]:
        """The tasks, of one environment or one level if so asked."""
        rpc = self._connection.envs.ListTasks
        found: list[TaskInfo] = []
        request = pb.ListTasksRequest(env_id=env_id or "", level=level or "", page_size=PAGE_SIZE)
        while True:
            page = self._connection.ask(rpc, request)
            found += [task_from_proto(task) for task in page.tasks]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def session(
        self,
        env_id: str | None = None,
        task_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        arguments: str = "strict",
        tools: ToolShaping = AS_THEY_ARE,
    ) -> Session:
        """Opens a session, which awaits its reset.

        Args:
            env_id: The environment; may be left out where a task is given.
            task_id: The task; None: the environment's own reward counts.
            labels: Kept with every episode. Reports group by "agent", "run" and "trial".
            arguments: "strict", or "lenient", which reads "25" as 25 where a tool wants a number.
            tools: How they are shown: with distractors among them, or under names that mean
                nothing.

        Raises:
            UnknownEnv: There is none of this id; the nearest ones are in the metadata.
            UnknownTask: There is none of this id; the nearest ones are in the metadata.
            TooManySessions: The server is full.
            QuotaExceeded: The tenant of the token holds as many sessions as it may.
            ValueError: `arguments` is neither of the two, or a number of `tools` out of bounds.
        """
        request = session_request(env_id, task_id, labels, arguments, tools)
        request.request_id = uuid.uuid4().hex
        reply = Route(self._connection).ask(lambda envs: envs.CreateSession, request)
        return Session(
            Route(self._connection, reply.endpoint),
            reply.session_id,
            env_from_proto(reply.env),
            task_from_proto(reply.task) if reply.HasField("task") else None,
            reply.lease_seconds,
            reply.agent_token,
        )

    def resume(self, session_id: str) -> Session:
        """Goes on with a session, at the step where it stands.

        Raises:
            UnknownSession: There never was one of this id.
            SessionClosed: It was closed.
            SessionExpired: Its lease ran out.
        """
        request = pb.GetSessionRequest(session_id=session_id)
        route = Route(self._connection)
        reply = route.ask(lambda envs: envs.GetSession, request)
        task = task_from_proto(reply.task) if reply.HasField("task") else None
        if reply.HasField("env"):
            env = env_from_proto(reply.env)
        else:
            env = next(env for env in self.envs() if env.env_id == reply.env_id)
            env = limited_to(env, task)
        session = Session(route, session_id, env, task, reply.lease_seconds)
        session.episode = reply.episode
        session.steps = reply.step
        session.state_hash = reply.state_hash
        return session

    def attach(self, session_id: str, env: EnvInfo, episode: int = 1) -> Session:
        """Plays in a session that somebody else opened and reset, with its `agent_token`.

        That token lets nothing be asked of the server but steps, renders and the close; so what
        there is to know comes from whoever opened the session.

        Args:
            session_id: Its id.
            env: As `Session.env` has it there.
            episode: The episode that runs; it must stand at its first step.
        """
        session = Session(Route(self._connection), session_id, env, None, 0.0)
        session.episode = episode
        return session

    def episodes(self, env_id: str | None = None) -> Iterator[EpisodeInfo]:
        """The episodes of the server's log, oldest first."""
        request = episode_service.ListEpisodesRequest(env_id=env_id or "", page_size=PAGE_SIZE)
        while True:
            page = self._connection.ask(self._connection.episodes.ListEpisodes, request)
            yield from map(episode_from_proto, page.episodes)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def read_episode(self, episode_id: str) -> Iterator[episode_pb2.EpisodeEvent]:
        """The events of an episode, as they stand in the server's log."""
        request = episode_service.ReadEpisodeRequest(episode_id=episode_id)
        for reply in self._connection.stream(self._connection.episodes.ReadEpisode, request):
            yield reply.event

    def score(
        self, episode_ids: Sequence[str] = (), timeout_seconds: float = 3_600.0
    ) -> Iterator[EpisodeScore]:
        """Replays episodes on the server and gives their scores.

        Args:
            episode_ids: Which; none: every one in the log.
            timeout_seconds: For all of them.
        """
        request = episode_service.ScoreEpisodesRequest(episode_ids=episode_ids)
        rpc = self._connection.episodes.ScoreEpisodes
        for reply in self._connection.stream(rpc, request, timeout_seconds):
            yield score_from_proto(reply.score)

    def health(self) -> str:
        """What the server says of itself: "SERVING" or "NOT_SERVING"."""
        stub = health_pb2_grpc.HealthStub(self._connection.channel)
        check = stub.Check  # type: ignore[attr-defined]  # its stubs do not name it
        reply = self._connection.ask(check, health_pb2.HealthCheckRequest())
        return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

    def close(self) -> None:
        """Closes the connection. Sessions stay open on the server until their lease ends."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Gives the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the connection."""
        self.close()


def session_request(
    env_id: str | None,
    task_id: str | None,
    labels: Mapping[str, str] | None,
    arguments: str,
    tools: ToolShaping,
) -> pb.CreateSessionRequest:
    """Asks for a session; see `Client.session` for the arguments.

    Raises:
        ValueError: `arguments` is neither "strict" nor "lenient", or a number of `tools` out of
            bounds.
    """
    if arguments not in RULES:
        raise ValueError(f"expected the rule 'strict' or 'lenient', got {arguments!r}")
    return pb.CreateSessionRequest(
        env_id=env_id or "",
        task_id=task_id or "",
        labels=labels or {},
        argument_rule=RULES[arguments],
        tool_shaping=None if tools == AS_THEY_ARE else episode_pb2.ToolShaping(**tools._asdict()),
    )
