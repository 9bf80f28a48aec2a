"""The agents that `railgym run` knows by name: scripted ones, models, and a user's own."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from env_server.cli.exits import Failure, failing_on
from env_server.cli.options import import_from_here

if TYPE_CHECKING:
    from env_server.registry import Registry
    from railgym.agents import Agent
    from railgym.records import TaskInfo
    from railgym.spaces import ToolShaping

ORACLE = "oracle"
SCRIPTED = (ORACLE, "idle", "random")

AgentFor: TypeAlias = "Callable[[TaskInfo | None], Agent]"
"""Makes the agent for a task; None: for an environment without one."""


def find_agent(name: str, registry: Registry, tools: ToolShaping) -> AgentFor:
    """Finds an agent.

    Args:
        name: "oracle" plays the gold solution, "idle" does nothing, "random" draws its actions;
            "PROVIDER:MODEL" asks a model, see `railgym.agents.models`; "module:function" is an
            agent as `railgym.agents` describes it.
        registry: Knows the gold solutions.
        tools: How tools are shown.

    Raises:
        Failure: There is no such agent.
    """
    from railgym import agents
    from railgym.agents import models

    scripted: dict[str, AgentFor] = {
        ORACLE: lambda task: _oracle(task, registry, tools),
        "idle": lambda task: agents.idle,
        "random": lambda task: agents.random,
    }
    if name in scripted:
        return scripted[name]
    if models.is_model(name):
        with failing_on(ValueError):
            agent: Agent = models.find(name)
    else:
        agent = _load(name)
    return lambda task: agent


def _oracle(task: TaskInfo | None, registry: Registry, tools: ToolShaping) -> Agent:
    from env_server.errors import RailgymError
    from env_server.gold import GoldError, play_gold
    from env_server.shaping import Toolbox
    from railgym.actions import ToolCall
    from railgym.agents import scripted

    if task is None:
        raise Failure("the oracle needs a task, and this environment has none")
    known = registry.tasks.get(task.task_id)
    if known is None or known.sha256 != task.sha256:
        raise Failure(f"the oracle needs the task {task.task_id} here too: --tasks PATH")
    try:
        actions = play_gold(known, registry)[0].actions
    except (GoldError, RailgymError) as e:
        raise Failure(f"the gold solution of {task.task_id} cannot be played: {e}") from e
    box = Toolbox(registry.env(known.env_id).tools, tools)
    return scripted(
        [a._replace(name=box.shown(a.name)) if isinstance(a, ToolCall) else a for a in actions]
    )


def _load(name: str) -> Agent:
    from railgym.agents.models import PROVIDERS

    kinds = f"{', '.join(SCRIPTED)}, {'|'.join(PROVIDERS)}:MODEL or module:function"
    expected = f"expected an agent {kinds}, got {name[:80]!r}"
    module_name, colon, function = name.partition(":")
    if not colon:
        raise Failure(expected)
    import_from_here()
    try:
        agent: Agent = getattr(import_module(module_name), function)
    except (ImportError, AttributeError, ValueError) as e:
        meant = get_close_matches(module_name, PROVIDERS, n=1)
        hint = f"; did you mean {meant[0]}:{function[:80]}?" if meant else ""
        raise Failure(f"{expected}: {e}{hint}") from e
    if not callable(agent):
        raise Failure(f"{expected}, which is no function")
    return agent
