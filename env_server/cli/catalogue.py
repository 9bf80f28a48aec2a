"""What there is to play: environments and tasks, of this installation or of a server.

Both are shown and selected by the same code, from what a client may know of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from env_server.cli.connection import connected
from env_server.cli.exits import Failure
from env_server.cli.options import NO_ACCESS, Access, open_registry

if TYPE_CHECKING:
    from env_server.registry import Registry
    from railgym.records import EnvInfo, TaskInfo


class Selection(NamedTuple):
    """Which tasks; an empty part selects all.

    Attributes:
        envs: Their environments.
        levels: Their levels.
        ids: They themselves.
        tags: Each has one of these.
    """

    envs: Sequence[str] = ()
    levels: Sequence[str] = ()
    ids: Sequence[str] = ()
    tags: Sequence[str] = ()


def envs_at(address: str | None, access: Access = NO_ACCESS) -> list[EnvInfo]:
    """The environments of a server; None: the bundled ones."""
    if address is not None:
        with connected(address, access) as client:
            return client.envs()
    return envs_of(open_registry())


def tasks_at(address: str | None, access: Access = NO_ACCESS) -> list[TaskInfo]:
    """The tasks of a server; None: the bundled ones."""
    if address is not None:
        with connected(address, access) as client:
            return client.tasks()
    return tasks_of(open_registry())


def envs_of(registry: Registry) -> list[EnvInfo]:
    """The environments of a registry, as a client would be told of them."""
    from env_server import codec
    from railgym.records import env_from_proto

    infos = [
        codec.env_info(entry, registry.task_count(env_id))
        for env_id, entry in registry.envs.items()
    ]
    return [env_from_proto(info) for info in infos]


def tasks_of(registry: Registry) -> list[TaskInfo]:
    """The tasks of a registry, as a client would be told of them."""
    from env_server import codec
    from railgym.records import task_from_proto

    return [task_from_proto(codec.task_info(task)) for task in registry.tasks.values()]


def find(kind: str, name: str, known: Iterable[str]) -> str:
    """Checks that a name is known.

    Args:
        kind: What it names, for the message.
        name: The name.
        known: All names.

    Raises:
        Failure: It is not; the nearest ones are named.
    """
    from env_server.errors import nearest, nearest_in_folder, shown

    names = list(known)
    if name not in names:
        close = (nearest_in_folder if kind == "task" else nearest)(name, names)
        raise Failure(f"no {kind} {shown(name)}; nearest: {', '.join(close)}")
    return name


def select(tasks: Iterable[TaskInfo], which: Selection, envs: Iterable[str]) -> list[TaskInfo]:
    """Selects tasks.

    Args:
        tasks: All of them.
        which: Selects.
        envs: The environments that there are.

    Raises:
        Failure: An environment, a task or a tag does not exist.
    """
    found, names = list(tasks), list(envs)
    for env_id in which.envs:
        find("environment", env_id, names)
    for task_id in which.ids:
        find("task", task_id, (task.task_id for task in found))
    for tag in which.tags:
        find("tag", tag, {tag for task in found for tag in task.tags})
    return [task for task in found if _fits(task, which)]


def _fits(task: TaskInfo, which: Selection) -> bool:
    return (
        (not which.envs or task.env_id in which.envs)
        and (not which.levels or task.level in which.levels)
        and (not which.ids or task.task_id in which.ids)
        and (not which.tags or not set(which.tags).isdisjoint(task.tags))
    )


def env_json(env: EnvInfo) -> dict[str, Any]:
    """An environment as JSON; spaces as Gymnasium prints them."""
    return {
        **env._asdict(),
        "action_space": str(env.action_space),
        "observation_space": str(env.observation_space),
        "tools": [tool._asdict() for tool in env.tools],
    }
