"""Keys: what the result of a trial depends on, so that nothing else is ever taken for it.

Two trials have one key if and only if all of that is equal. What only judges an episode (metrics,
statistics, prices) is no part of a key: such a change means scoring again, not playing again.
This module knows nothing of logs.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from env_server.arguments import canonical_json
from env_server.cli.agents import SCRIPTED

if TYPE_CHECKING:
    from env_server.cli.agents import AgentFor
    from env_server.cli.trials import Trial
    from railgym.records import EnvInfo, TaskInfo

LENGTH = 32
"""Hexadecimal digits of a key: 128 bits."""


def identity(name: str, agent_for: AgentFor) -> dict[str, Any]:
    """What the results of an agent depend on, as far as it can be known.

    An agent may say so itself by a method `describe`, as model agents do: provider, model,
    parameters, digest of the prompt. One that does not is known by the text of its module.

    Args:
        name: As the run knows it.
        agent_for: Makes it.
    """
    if name in SCRIPTED:
        return {"name": name}
    agent = agent_for(None)
    describe = getattr(agent, "describe", None)
    if callable(describe):
        return {"name": name, "describe": describe()}
    # They differ where the agent is made by something of another module, as by `partial`.
    return {"name": name, "module_sha256": _text_sha256(_named(name), inspect.getmodule(agent))}


class Keys:
    """Gives the trials of a run their keys."""

    def __init__(
        self,
        agents: Mapping[str, Mapping[str, Any]],
        envs: Iterable[EnvInfo],
        options: Mapping[str, Any],
    ) -> None:
        """Takes what trials depend on besides themselves.

        Args:
            agents: What each is known by, see `identity`.
            envs: With all their tools.
            options: Of the run, those that change what happens in an episode.
        """
        self._agents = agents
        self._envs = {env.env_id: env for env in envs}
        # One of the user's has no version that is sure to change with it.
        self._env_texts = {env_id: _text_sha256(_named(env_id)) for env_id in self._envs}
        self._options = dict(options)
        self._tools: dict[tuple[str, tuple[str, ...]], str] = {}

    def key(self, trial: Trial) -> str:
        """The key of a trial."""
        task, env = trial.target.task, self._envs[trial.target.env_id]
        parts = {
            "agent": dict(self._agents[trial.agent]),
            "env_id": env.env_id,
            "env_version": env.env_version,
            "env_module_sha256": self._env_texts[env.env_id],
            "task_sha256": task.sha256 if task else "",
            "tools_sha256": self._tools_sha256(env, task),
            "tools_shown": trial.tools._asdict(),
            "options": self._options,
            "seed": trial.seed,
            "trial": trial.number,
        }
        return _sha256(parts)[:LENGTH]

    def _tools_sha256(self, env: EnvInfo, task: TaskInfo | None) -> str:
        """Digest of the tools' names, descriptions and schemas; empty without tools."""
        from railgym.records import limited_to

        which = env.env_id, task.allowed_tools if task else ()
        if which not in self._tools:
            tools = [list(tool) for tool in limited_to(env, task).tools]
            self._tools[which] = _sha256(tools) if tools else ""
        return self._tools[which]


def _named(name: str) -> ModuleType | None:
    """The module of "module:name", where it was imported."""
    return sys.modules.get(name.partition(":")[0]) if ":" in name else None


def _text_sha256(*modules: ModuleType | None) -> str:
    """Digest of the text of modules, as far as they have any."""
    sources = [source for module in modules if (source := getattr(module, "__file__", None))]
    texts = [Path(source).read_bytes() for source in dict.fromkeys(sources)]
    return hashlib.sha256(b"".join(texts)).hexdigest() if texts else ""


def _sha256(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
