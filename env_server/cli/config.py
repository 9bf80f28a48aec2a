"""What a run is asked to do, and the trials that this comes to."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from env_server.arguments import canonical_json
from env_server.cli.agents import ORACLE
from env_server.cli.catalogue import Selection, envs_at, envs_of, select, tasks_at, tasks_of
from env_server.cli.exits import Failure
from env_server.cli.keys import Keys, identity
from env_server.cli.options import Access
from env_server.cli.output import say

if TYPE_CHECKING:
    from env_server.cli.agents import AgentFor
    from env_server.cli.trials import Target, Trial
    from env_server.registry import Registry
    from railgym.records import EnvInfo
    from railgym.spaces import ToolShaping

NAME_LENGTH = 100


class Config(NamedTuple):
    """What a run is asked to do; what stands in config.json.

    Attributes:
        address: Of the user's server; None: its own.
        agents: By name.
        envs: Environments; those that do not come with Railgym are added. Empty: all with tasks.
        levels: Of tasks; empty: all.
        tasks: By id; empty: all.
        tags: Tasks with one of these; empty: all.
        task_files: Added to the bundled ones.
        limit: Most tasks of each environment and level; None: all.
        repeats: Tries at each task.
        seed: Trials' own seeds follow from it.
        distractors: Tools of other domains that are shown among those of an environment.
        rename_tools: Whether tools are shown under names that mean nothing.
        time_limit: Of a trial, in seconds, without waiting for a model's provider; None: none.
        concurrency: Most trials at the same time.
        budget_usd: The claimed cost at which no more trials begin; None: none.
    """

    address: str | None
    agents: Sequence[str]
    envs: Sequence[str] = ()
    levels: Sequence[str] = ()
    tasks: Sequence[str] = ()
    tags: Sequence[str] = ()
    task_files: Sequence[str] = ()
    limit: int | None = None
    repeats: int = 1
    seed: int = 0
    distractors: int = 0
    rename_tools: bool = False
    time_limit: float | None = None
    concurrency: int = 8
    budget_usd: float | None = None

    @property
    def task_paths(self) -> list[Path]:
        """The task files as paths."""
        return [Path(path) for path in self.task_files]

    @property
    def tools(self) -> ToolShaping:
        """How the tools of an environment are shown."""
        from railgym.spaces import AS_THEY_ARE, ToolShaping

        shaped = ToolShaping(self.distractors, self.rename_tools, self.seed)
        return shaped if self.distractors or self.rename_tools else AS_THEY_ARE

    @property
    def options(self) -> dict[str, Any]:
        """What changes an episode besides its agent, task and seed: a part of every key."""
        return {"arguments": "strict", "time_limit": self.time_limit}

    @property
    def default_name(self) -> str:
        """A name for the folder that equal requests share, and no others.

        How fast and for how much it is played makes no other request.
        """
        asked = self._replace(concurrency=0, budget_usd=None)._asdict()
        digest = hashlib.sha256(canonical_json(asked).encode()).hexdigest()
        names = "-".join(dict.fromkeys(agent.partition("?")[0] for agent in self.agents))
        words = re.sub(r"[^A-Za-z0-9._]+", "-", names)[:48].strip("-._")
        return f"{words or 'run'}-{digest[:8]}"


def full_names(envs: Sequence[str]) -> list[str]:
    """Environments by their ids: one that comes with Railgym may be named without "railgym/"."""
    from env_server.envs import ENVS

    bundled = {env_id.rpartition("/")[2]: env_id for env_id in ENVS}
    return list(dict.fromkeys(bundled.get(name, name) for name in envs))


def check_name(name: str) -> None:
    """Makes sure that a name can be that of a folder.

    Raises:
        Failure: It cannot.
    """
    if Path(name).name != name or name in ("", "..") or len(name) > NAME_LENGTH:
        expected = f"expected a plain name of at most {NAME_LENGTH} characters"
        raise Failure(f"{expected}, got {name[:80]!r}")


def plan_run(
    config: Config, access: Access, registry: Registry, agents: Mapping[str, AgentFor]
) -> list[Trial]:
    """Plans the trials of a run, each with its key.

    Args:
        config: What is asked for.
        access: To the user's server.
        registry: What a server of its own will offer.
        agents: By name.

    Raises:
        Failure: Something that is asked for does not exist, or nothing fits.
    """
    from env_server.cli.trials import plan

    envs = envs_of(registry) if config.address is None else envs_at(config.address, access)
    targets = _limited(_targets(config, access, registry, envs), config.limit)
    trials = plan(config.agents, targets, config.repeats, config.seed)
    playable = [t for t in trials if t.agent != ORACLE or t.target.task is not None]
    if len(playable) < len(trials):
        say(f"{ORACLE} is left out where there is no task, and so no solution to play")
    if not playable:
        raise Failure("expected a selection that at least one task fits, got one that none does")
    identities = {name: identity(name, agent_for) for name, agent_for in agents.items()}
    keys = Keys(identities, envs, config.options)
    with_tools = {env.env_id for env in envs if env.tools}
    shaped = [
        t._replace(tools=config.tools) if t.target.env_id in with_tools else t for t in playable
    ]
    return [t._replace(key=keys.key(t)) for t in shaped]


def _targets(
    config: Config, access: Access, registry: Registry, envs: Sequence[EnvInfo]
) -> list[Target]:
    """The selected tasks, and the environments that were named and have none."""
    from env_server.cli.trials import Target

    tasks = tasks_of(registry) if config.address is None else tasks_at(config.address, access)
    which = Selection(config.envs, config.levels, config.tasks, config.tags)
    selected = select(tasks, which, [env.env_id for env in envs])
    targets = [Target(task.env_id, task) for task in selected]
    if not (config.levels or config.tasks or config.tags):
        bare = [e.env_id for e in envs if e.env_id in config.envs and not e.task_count]
        targets += [Target(env_id, None) for env_id in bare]
    return targets


def _limited(targets: Sequence[Target], limit: int | None) -> list[Target]:
    """The first `limit` targets of each environment and level."""
    taken: dict[tuple[str, str], int] = {}
    kept = []
    for target in targets:
        key = target.env_id, target.task.level if target.task else ""
        taken[key] = taken.get(key, 0) + 1
        if limit is None or taken[key] <= limit:
            kept.append(target)
    return kept
