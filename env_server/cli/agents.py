"""The agents that `railgym run` knows by name: three scripted ones, and a user's own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from env_server.cli.exits import Failure
from env_server.cli.options import import_from_here

if TYPE_CHECKING:
    from env_server.registry import Registry
    from railgym.agents import Agent
    from railgym.records import TaskInfo

ORACLE = "oracle"
SCRIPTED = (ORACLE, "idle", "random")

AgentFor: TypeAlias = "Callable[[TaskInfo | None], Agent]"
"""Makes the agent for a task; None: for an environment without one."""


def find_agent(name: str, registry: Registry) -> AgentFor:
    """Finds an agent.

    Args:
        name: "oracle" plays the gold solution, "idle" does nothing, "random" draws its actions;
            "module:function" is an agent as `railgym.agents` describes it.
        registry: Knows the gold solutions.

    Raises:
        Failure: There is no such agent.
    """
    from railgym import agents

    scripted: dict[str, AgentFor] = {
        ORACLE: lambda task: _oracle(task, registry),
        "idle": lambda task: agents.idle,
        "random": lambda task: agents.random,
    }
    if name in scripted:
        return scripted[name]
    agent = _load(name)
    return lambda task: agent


def _oracle(task: TaskInfo | None, registry: Registry) -> Agent:
    from env_server.errors import RailgymError
    from env_server.gold import GoldError, play_gold
    from railgym.agents import scripted

    if task is None:
        raise Failure("the oracle needs a task, and this environment has none")
    known = registry.tasks.get(task.task_id)
    if known is None or known.sha256 != task.sha256:
        raise Failure(f"the oracle needs the task {task.task_id} here too: --tasks PATH")
    try:
        return scripted(list(play_gold(known, registry)[0].actions))
    except (GoldError, RailgymError) as e:
        raise Failure(f"the gold solution of {task.task_id} cannot be played: {e}") from e


def _load(name: str) -> Agent:
    expected = f"expected an agent {', '.join(SCRIPTED)} or module:function, got {name[:80]!r}"
    module_name, colon, function = name.partition(":")
    if not colon:
        raise Failure(expected)
    import_from_here()
    try:
        agent: Agent = getattr(import_module(module_name), function)
    except (ImportError, AttributeError, ValueError) as e:
        raise Failure(f"{expected}: {e}") from e
    if not callable(agent):
        raise Failure(f"{expected}, which is no function")
    return agent
