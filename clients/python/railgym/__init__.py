"""Railgym: stateful environments for agents, behind gRPC.

    import railgym

    with railgym.connect("localhost:50051") as client:
        with client.session(task_id="typewriter/reference/dog") as session:
            session.reset()
            session.call("type_letter", letter="d")

`railgym.make("railgym/Typewriter-v1", address="localhost:50051")` gives the same as a
`gymnasium.Env`. This package is the thin client: it holds no environment and no server code.
Everything is imported on first use, so that importing `railgym` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from railgym._version import __version__
from railgym.registration import register_soon

if TYPE_CHECKING:
    from railgym.actions import Action, Final, NoAction, Plain, Text, ToolCall, Transition, call
    from railgym.client import Client, connect
    from railgym.errors import (
        BadAction,
        BadOptions,
        BadPage,
        BadRequest,
        DeadlineExceeded,
        Draining,
        EnvError,
        EpisodeOutOfOrder,
        EpisodeOver,
        LogUnwritable,
        NotReset,
        NotResumable,
        PermissionDenied,
        QuotaExceeded,
        RailgymError,
        ServerError,
        SessionClosed,
        SessionExpired,
        StepOutOfOrder,
        StepTimedOut,
        TooManySessions,
        Unauthenticated,
        Unavailable,
        UnknownEnv,
        UnknownEpisode,
        UnknownSession,
        UnknownTask,
        WrongEndpoint,
    )
    from railgym.gym_env import RailgymEnv, make
    from railgym.records import EnvInfo, EpisodeInfo, Limits, ServerInfo, TaskInfo
    from railgym.scores import EpisodeScore
    from railgym.session import Session
    from railgym.spaces import ToolShaping, ToolSpace, ToolSpec
    from railgym.vector_env import RailgymVectorEnv, make_vec

_HOMES = {
    "Action": "actions",
    "BadAction": "errors",
    "BadOptions": "errors",
    "BadPage": "errors",
    "BadRequest": "errors",
    "Client": "client",
    "DeadlineExceeded": "errors",
    "EnvError": "errors",
    "EnvInfo": "records",
    "EpisodeInfo": "records",
    "EpisodeOutOfOrder": "errors",
    "EpisodeOver": "errors",
    "EpisodeScore": "scores",
    "Final": "actions",
    "Unauthenticated": "errors",
    "PermissionDenied": "errors",
    "QuotaExceeded": "errors",
    "WrongEndpoint": "errors",
    "StepTimedOut": "errors",
    "Draining": "errors",
    "Limits": "records",
    "LogUnwritable": "errors",
    "NoAction": "actions",
    "NotReset": "errors",
    "NotResumable": "errors",
    "Plain": "actions",
    "RailgymEnv": "gym_env",
    "RailgymError": "errors",
    "RailgymVectorEnv": "vector_env",
    "ServerError": "errors",
    "ServerInfo": "records",
    "Session": "session",
    "SessionClosed": "errors",
    "SessionExpired": "errors",
    "StepOutOfOrder": "errors",
    "TaskInfo": "records",
    "Text": "actions",
    "TooManySessions": "errors",
    "ToolCall": "actions",
    "ToolShaping": "spaces",
    "ToolSpace": "spaces",
    "ToolSpec": "spaces",
    "Transition": "actions",
    "Unavailable": "errors",
    "UnknownEnv": "errors",
    "UnknownEpisode": "errors",
    "UnknownSession": "errors",
    "UnknownTask": "errors",
    "call": "actions",
    "connect": "client",
    "make": "gym_env",
    "make_vec": "vector_env",
}

__all__ = [
    "Action",
    "BadAction",
    "BadOptions",
    "BadPage",
    "BadRequest",
    "Client",
    "DeadlineExceeded",
    "Draining",
    "EnvError",
    "EnvInfo",
    "EpisodeInfo",
    "EpisodeOutOfOrder",
    "EpisodeOver",
    "EpisodeScore",
    "Final",
    "Limits",
    "LogUnwritable",
    "NoAction",
    "NotReset",
    "NotResumable",
    "PermissionDenied",
    "Plain",
    "QuotaExceeded",
    "RailgymEnv",
    "RailgymError",
    "RailgymVectorEnv",
    "ServerError",
    "ServerInfo",
    "Session",
    "SessionClosed",
    "SessionExpired",
    "StepOutOfOrder",
    "StepTimedOut",
    "TaskInfo",
    "Text",
    "TooManySessions",
    "ToolCall",
    "ToolShaping",
    "ToolSpace",
    "ToolSpec",
    "Transition",
    "Unauthenticated",
    "Unavailable",
    "UnknownEnv",
    "UnknownEpisode",
    "UnknownSession",
    "UnknownTask",
    "WrongEndpoint",
    "__version__",
    "call",
    "connect",
    "make",
    "make_vec",
]

register_soon()


def __getattr__(name: str) -> Any:
    """Imports a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'railgym' has no attribute {name!r}")
    value = getattr(import_module(f"railgym.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
