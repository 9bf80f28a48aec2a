"""Plain requests to the services, as a client in any language writes them, and what they refuse."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from env_server.env import Action, Final, ToolCall
from env_server.episode import Episode, EpisodeSpec, Reply
from env_server.log import episodes
from env_server.registry import Registry
from railgym import codec
from railgym.errors import from_rpc_error
from railgym.session import as_action
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

SECONDS = 30
TYPEWRITER = "railgym/Typewriter-v1"
DOG = "typewriter/reference/dog"


class Refusal(NamedTuple):
    code: str
    reason: str
    metadata: dict[str, str]
    message: str


def refusal(rpc: Any, request: Any) -> Refusal:
    """Makes a call that must be refused, and gives the refusal."""
    with pytest.raises(grpc.RpcError) as caught:
        ask(rpc, request)
    error = from_rpc_error(caught.value)
    return Refusal(error.code, error.reason, error.metadata, str(error))


def ask(rpc: Any, request: Any) -> Any:
    """Makes a call, and reads what it streams to the end."""
    reply = rpc(request, timeout=SECONDS)
    return list(reply) if isinstance(reply, grpc.RpcContext) else reply


def create(envs: EnvServiceStub, env_id: str = TYPEWRITER, **fields: Any) -> str:
    request = pb.CreateSessionRequest(env_id=env_id, **fields)
    return envs.CreateSession(request, timeout=SECONDS).session_id


def reset_request(session_id: str, options: Any = None, **fields: Any) -> pb.ResetRequest:
    options_json = "" if options is None else json.dumps(options)
    return pb.ResetRequest(session_id=session_id, options_json=options_json, **fields)


def reset(
    envs: EnvServiceStub, session_id: str, options: Any = None, **fields: Any
) -> pb.ResetResponse:
    return envs.Reset(reset_request(session_id, options, **fields), timeout=SECONDS)


def step_request(session_id: str, step: int, action: Any, **fields: Any) -> pb.StepRequest:
    """An action is one of `railgym`, an integer for a Discrete space, or a message."""
    return pb.StepRequest(session_id=session_id, step=step, action=message(action), **fields)


def step(
    envs: EnvServiceStub, session_id: str, step: int, action: Any, **fields: Any
) -> episode_pb2.Transition:
    request = step_request(session_id, step, action, **fields)
    return envs.Step(request, timeout=SECONDS).transition


def where(envs: EnvServiceStub, session_id: str) -> pb.GetSessionResponse:
    return envs.GetSession(pb.GetSessionRequest(session_id=session_id), timeout=SECONDS)


def close(envs: EnvServiceStub, session_id: str, **fields: Any) -> None:
    envs.CloseSession(pb.CloseSessionRequest(session_id=session_id, **fields), timeout=SECONDS)


def playing(envs: EnvServiceStub, env_id: str = TYPEWRITER, **fields: Any) -> str:
    """A session whose first episode has begun."""
    session_id = create(envs, env_id)
    reset(envs, session_id, **{"seed": 1, **fields})
    return session_id


def letter(text: str) -> ToolCall:
    return ToolCall("type_letter", json.dumps({"letter": text}))


def letters(text: str, answer: str | None = "") -> list[Action]:
    typed: list[Action] = [letter(one) for one in text]
    return typed if answer is None else [*typed, Final(answer)]


def message(action: Any, space: Any = None) -> episode_pb2.Action:
    if isinstance(action, episode_pb2.Action):
        return action
    return codec.action_to_proto(as_action(action), space)


def play_here(
    registry: Registry,
    actions: list[Any],
    seed: int,
    env_id: str = "",
    task_id: str = "",
    **options,
) -> list[Reply]:
    """Plays an episode in process."""
    task = registry.task(task_id) if task_id else None
    env_id = env_id or task.env_id
    options = {**(task.options if task else {}), **options}
    episode = Episode(EpisodeSpec(env_id, task, options, seed), registry.env(env_id).make())
    return [episode.step(n, as_action(action)) for n, action in enumerate(actions, start=1)]


def steps_in(log_dir: Path) -> Counter[tuple[str, int]]:
    """How often each step stands in a log, by episode and number."""
    return Counter(
        (logged.episode_id, taken.step) for logged in episodes(log_dir) for taken in logged.steps
    )
