"""Which environments and tasks there are, and how to make one.

The bundled ones are there from the start. Others are added by an operator, never by what comes
over the wire or stands in a log: adding a class imports its module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import gymnasium

from env_server.env import StatefulEnv, Tool, ToolEnv
from env_server.envs import ENVS
from env_server.envs.hosted import Hosted
from env_server.errors import BadRequest, UnknownEnv, UnknownTask, nearest, nearest_in_folder, shown
from env_server.tasks import Task, bundled_tasks
from railgym._version import __version__


class EnvEntry(NamedTuple):
    """One environment.

    Attributes:
        env_id: Its id.
        version: Where its code comes from, for instance "railgym 0.1.0".
        description: First lines of its docstring.
        env_class: Its class.
        make: Makes a fresh one.
        tools: Its tools by name; empty for a plain environment.
    """

    env_id: str
    version: str
    description: str
    env_class: type[gymnasium.Env[Any, Any]]
    make: Callable[[], StatefulEnv]
    tools: Mapping[str, Tool]

    @property
    def is_plain(self) -> bool:
        """Whether actions are values of a Gymnasium space and not tool calls."""
        return not self.tools

    @property
    def is_foreign(self) -> bool:
        """Whether the code is not Railgym's own, and may take any time."""
        return self.env_id not in ENVS

    @property
    def options_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the reset options; None where the environment does not say."""
        options = getattr(self.env_class, "OPTIONS", None)
        return None if options is None else options.model_json_schema()


class Registry:
    """The environments and tasks of one server, or of one scoring."""

    def __init__(self, tasks: Mapping[str, Task] | None = None) -> None:
        """Begins with the bundled environments.

        Args:
            tasks: By id; None: the bundled ones.
        """
        self._tasks = tasks
        version = f"railgym {__version__}"
        self._envs = {env_id: _entry(env_id, version, cls) for env_id, cls in ENVS.items()}

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """Every task by id, read on first use."""
        return bundled_tasks() if self._tasks is None else self._tasks

    @property
    def envs(self) -> Mapping[str, EnvEntry]:
        """Every environment by id."""
        return self._envs

    def add(self, name: str) -> EnvEntry:
        """Adds an environment.

        Args:
            name: An id that Gymnasium has registered, or "module:Class". The module is imported.

        Raises:
            UnknownEnv: There is no such id, module or class, or it cannot be loaded.
            BadRequest: The class is no environment.
        """
        if name not in self._envs:
            self._envs[name] = _from_class(name) if ":" in name else _from_gymnasium(name)
        return self._envs[name]

    def env(self, env_id: str) -> EnvEntry:
        """Finds an environment.

        Raises:
            UnknownEnv: There is none of this id; the message names the nearest ones.
        """
        if env_id not in self._envs:
            close = nearest(env_id, self._envs)
            how = "; one of a module is added with --env" if ":" in env_id else ""
            raise UnknownEnv(
                f"no environment {shown(env_id)}; nearest: {', '.join(close)}{how}",
                env_id=env_id[:200],
                nearest=",".join(close),
            )
        return self._envs[env_id]

    def task_count(self, env_id: str) -> int:
        """How many tasks an environment has."""
        return sum(task.env_id == env_id for task in self.tasks.values())

    def task(self, task_id: str) -> Task:
        """Finds a task.

        Raises:
            UnknownTask: There is none of this id; the message names the nearest ones.
        """
        if task_id not in self.tasks:
            close = nearest_in_folder(task_id, self.tasks)
            raise UnknownTask(
                f"no task {shown(task_id)}; nearest: {', '.join(close)}",
                task_id=task_id[:200],
                nearest=",".join(close),
            )
        return self.tasks[task_id]


def _entry(env_id: str, version: str, cls: type[gymnasium.Env[Any, Any]]) -> EnvEntry:
    description = inspect.cleandoc(cls.__doc__ or "")
    if issubclass(cls, ToolEnv):
        return EnvEntry(env_id, version, description, cls, cls, cls.TOOLS)
    return EnvEntry(env_id, version, description, cls, lambda: Hosted(_make_plain(cls)), {})


def _make_plain(cls: type[gymnasium.Env[Any, Any]]) -> gymnasium.Env[Any, Any]:
    make: Any = cls
    mode = _render_mode(cls.metadata)
    env: gymnasium.Env[Any, Any] = make() if mode is None else make(render_mode=mode)
    return env


def _render_mode(metadata: Mapping[str, Any]) -> str | None:
    modes = metadata.get("render_modes") or []
    return next((mode for mode in ("rgb_array", "ansi") if mode in modes), None)


def _from_class(name: str) -> EnvEntry:
    module_name, _, class_name = name.partition(":")
    try:
        module = import_module(module_name)
        cls = getattr(module, class_name)
    except (ImportError, AttributeError, TypeError, ValueError) as e:
        raise UnknownEnv(f"cannot load {shown(name)}: {e}", env_id=name[:200], nearest="") from e
    if not (inspect.isclass(cls) and issubclass(cls, gymnasium.Env)):
        raise BadRequest(
            f"expected a subclass of gymnasium.Env, got {shown(name)}",
            field="env",
            expected="a subclass of gymnasium.Env",
            got=name[:200],
        )
    return _entry(name, f"{module_name} {getattr(module, '__version__', 'unversioned')}", cls)


def _from_gymnasium(env_id: str) -> EnvEntry:
    known = gymnasium.registry
    if env_id not in known:
        close = nearest(env_id, {*known, *ENVS})
        raise UnknownEnv(
            f"Gymnasium has no environment {shown(env_id)}; nearest: {', '.join(close)}",
            env_id=env_id[:200],
            nearest=",".join(close),
        )

    try:
        sample = gymnasium.make(env_id, disable_env_checker=True)
    except (ImportError, gymnasium.error.Error) as e:
        raise UnknownEnv(
            f"cannot load {shown(env_id)}: {e}", env_id=env_id[:200], nearest=""
        ) from e
    cls, mode = type(sample.unwrapped), _render_mode(sample.metadata)
    sample.close()

    def make() -> StatefulEnv:
        return Hosted(gymnasium.make(env_id, render_mode=mode, disable_env_checker=True))

    version = f"gymnasium {gymnasium.__version__}"
    return EnvEntry(env_id, version, inspect.cleandoc(cls.__doc__ or ""), cls, make, {})
