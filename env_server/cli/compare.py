"""`railgym compare`: two runs or two agents, paired task by task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from env_server.cli.exits import Failure, failing_on
from env_server.cli.options import Json
from env_server.cli.output import print_json
from env_server.cli.score import SCORES, print_table, read_scores

if TYPE_CHECKING:
    from env_server.scoring.score import EpisodeScore


class Side(NamedTuple):
    """One side of a comparison.

    Attributes:
        path: Of its scores.
        agent: Whose they are.
        scores: The scores.
    """

    path: Path
    agent: str
    scores: list[EpisodeScore]

    @property
    def name(self) -> str:
        """The agent, and where its scores are."""
        return f"{self.agent or '(no agent)'} in {self.path}"


def compare(
    a: Annotated[Path, typer.Argument(help="The folder of a run, or a scores.json.")],
    b: Annotated[
        Path | None,
        typer.Argument(show_default=False, help="The other one. Default: the same, of two agents."),
    ] = None,
    agent_a: Annotated[
        str | None,
        typer.Option("--agent-a", metavar="NAME", show_default=False, help="Of several in A."),
    ] = None,
    agent_b: Annotated[
        str | None,
        typer.Option("--agent-b", metavar="NAME", show_default=False, help="Of several in B."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs, or two agents of one, on the tasks that both tried.

    Paired by task: an exact McNemar test, a bootstrap interval of the difference, and the smallest
    difference that so many tasks could show. Of several tries at a task the share of successes
    counts. Refuses tasks of one name that are not the same.

    `railgym compare runs/before runs/after`

    `railgym compare runs/first --agent-a anthropic:MODEL --agent-b openai:MODEL`
    """
    from env_server.scoring import compare as paired
    from env_server.scoring.table import beside_table, comparison_table, differences

    side_a, side_b = _sides(a, b or a, agent_a, agent_b)
    with failing_on(paired.DifferentTasks, paired.NothingInCommon):
        found = paired.compare(side_a.scores, side_b.scores)
    if as_json:
        sides = {"a": side_a, "b": side_b}
        named = {k: {"path": str(s.path), "agent": s.agent} for k, s in sides.items()}
        print_json({**named, **found.to_json()})
        return
    print_table(comparison_table(found, side_a.name, side_b.name))
    if found.pooled.metrics:
        print_table(beside_table(found))
    for line in (*found.notes, *differences(found)):
        typer.echo(line)


def _sides(a: Path, b: Path, agent_a: str | None, agent_b: str | None) -> tuple[Side, Side]:
    """Both sides; of one run with two agents, the first one and the second.

    Raises:
        Failure: It cannot be told which agents are meant, or they are one and the same.
    """
    same = _file(a).resolve() == _file(b).resolve()
    by_agent_a = _by_agent(a)
    by_agent_b = by_agent_a if same else _by_agent(b)
    if same and agent_a is None and agent_b is None and len(by_agent_a) == 2:
        agent_a, agent_b = sorted(by_agent_a)
    side_a = _side(a, by_agent_a, agent_a, "--agent-a")
    side_b = _side(b, by_agent_b, agent_b, "--agent-b")
    if same and side_a.agent == side_b.agent:
        raise Failure(f"expected two runs or two agents, got twice {side_a.name}")
    return side_a, side_b


def _side(
    path: Path, by_agent: dict[str, list[EpisodeScore]], agent: str | None, flag: str
) -> Side:
    names = ", ".join(repr(name) for name in sorted(by_agent))
    if agent is None:
        if len(by_agent) != 1:
            raise Failure(f"expected {flag} to say which agent of {path} is meant, one of {names}")
        [agent] = by_agent
    if agent not in by_agent:
        raise Failure(f"expected an agent of {path}, one of {names}, got {agent[:80]!r}")
    return Side(path, agent, by_agent[agent])


def _by_agent(path: Path) -> dict[str, list[EpisodeScore]]:
    from env_server.scoring.summary import summarise

    found: dict[str, list[EpisodeScore]] = {}
    for score in summarise(read_scores(_file(path))).episodes:
        found.setdefault(score.agent, []).append(score)
    if not found:
        raise Failure(f"expected scores at {path}, got none")
    return found


def _file(path: Path) -> Path:
    """The scores.json that is meant, whether it or its folder was named."""
    return path / SCORES if path.is_dir() else path
