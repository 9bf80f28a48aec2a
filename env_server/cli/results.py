"""Shows what came of a run, or what would come of it, and says so in the exit code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from env_server.cli.exits import Exit
from env_server.cli.failures import failure_lines
from env_server.cli.live import usage
from env_server.cli.output import print_rows
from env_server.cli.pricing import price_remarks
from env_server.cli.reuse import Standing
from env_server.cli.score import REPORT, print_table, problems, verdict
from env_server.cli.words import counted

if TYPE_CHECKING:
    from env_server.cli.config import Config
    from env_server.cli.folder import Folder
    from env_server.cli.reuse import Share
    from env_server.cli.runs import Outcome
    from env_server.scoring.score import EpisodeScore


def exit_code(outcome: Outcome, fail_under: float | None) -> Exit:
    """What a run comes to: the worst of all that is wrong with it."""
    if outcome.stopped is not None:
        return Exit.STOPPED
    if outcome.left:
        return Exit.BUDGET
    if outcome.failed or below(outcome.summary.episodes, fail_under):
        return Exit.BAD
    return verdict(outcome.summary.episodes)


def below(scores: Iterable[EpisodeScore], fail_under: float | None) -> list[str]:
    """A line for each agent whose success over valid trials of tasks is too low, or not known.

    Args:
        scores: Of all agents.
        fail_under: The least that is enough; None: anything is.
    """
    if fail_under is None:
        return []
    judged: defaultdict[str, list[bool]] = defaultdict(list)
    for score in scores:
        found = judged[score.agent]
        if score.valid and score.success is not None:
            found.append(score.success)
    lines = []
    for agent, found in sorted(judged.items()):
        if not found:
            lines.append(f"{agent}: no valid trial of a task, so no success of {fail_under:g}")
        elif sum(found) < fail_under * len(found):
            mean = sum(found) / len(found)
            trials = counted(len(found), "valid trial")
            lines.append(f"{agent}: success {mean:.3f} over {trials} is under {fail_under:g}")
    return lines


def show(folder: Folder, outcome: Outcome) -> None:
    """Shows a person what came of a run."""
    from env_server.scoring.table import notes, success_table

    episodes = outcome.summary.episodes
    if any(score.valid for score in episodes):
        print_table(success_table(outcome.summary))
    remarks = price_remarks(episodes, outcome.prices)
    for line in [*notes(outcome.summary), *remarks, *problems(episodes)]:
        typer.echo(line)
    if used := usage(outcome.tally):
        typer.echo(f"Models used, with all that was ever played here: {used}")
    total = outcome.tally.total()
    before = f", {counted(total.reused, 'trial')} from before" if total.reused else ""
    typer.echo(f"Scored by replay: {counted(len(episodes), 'episode')}{before}.")
    typer.echo(f"The report: {folder.path / REPORT}")


def complaints(outcome: Outcome, config: Config, fail_under: float | None) -> list[str]:
    """A line for each thing that is wrong with a run."""
    lines = failure_lines(outcome.failed)
    left, used = outcome.left, outcome.tally.spending.total()
    if outcome.stopped is not None:
        missing = counted(left + len(outcome.failed), "trial")
        lines.append(f"The run was stopped. Not played: {missing}")
    elif left:
        lines.append(
            f"The budget of ${config.budget_usd:g} is used up (${used.usd:.4f}), with "
            f"{counted(left, 'trial')} to play: the same command with a higher --budget-usd goes on"
        )
    if config.budget_usd is not None and used.unpriced:
        calls = counted(used.unpriced, "call")
        lines.append(f"The budget does not know of {calls} of unknown cost: --prices")
    return lines + below(outcome.summary.episodes, fail_under)


def result_json(folder: Folder, outcome: Outcome, wrong: Sequence[str]) -> dict[str, Any]:
    """What came of a run, and what is wrong with it, for a program."""
    total, used = outcome.tally.total(), outcome.tally.spending.total()
    return {
        "folder": str(folder.path),
        "trials": total.trials,
        "reused_trials": total.reused,
        "failed_trials": total.failed,
        "left_trials": total.left,
        "claimed": {"calls": used.calls, "tokens": used.tokens, "usd": used.cost},
        "unpriced_calls": used.unpriced,
        "price_remarks": price_remarks(outcome.summary.episodes, outcome.prices),
        "wrong": list(wrong),
        "summary": outcome.summary.to_json()["summary"],
    }


def show_plan(folder: Folder, shares: Sequence[Share]) -> None:
    """Shows a person what a run would do."""
    columns = ["agent", "environment", *Standing, "tokens", "cost"]
    print_rows(
        columns,
        (
            [
                share.agent,
                share.env_id,
                *(share.counts[kind] for kind in Standing),
                "unknown" if share.tokens is None else f"{share.tokens:,.0f}",
                "unknown" if share.cost_usd is None else f"${share.cost_usd:.2f}",
            ]
            for share in shares
        ),
    )
    to_play = sum(share.to_play for share in shares)
    cost = estimate(shares)
    words = "of unknown cost" if cost is None else f"for about ${cost:.2f}"
    trials = counted(to_play, "trial")
    typer.echo(f"Would play {trials}, {words}, in {folder.path}. Nothing was done.")


def plan_json(folder: Folder, shares: Sequence[Share]) -> dict[str, Any]:
    """What a run would do, for a program."""
    rows = [
        {
            "agent": share.agent,
            "env_id": share.env_id,
            **{kind.value: share.counts[kind] for kind in Standing},
            "tokens": share.tokens,
            "cost_usd": share.cost_usd,
        }
        for share in shares
    ]
    return {"folder": str(folder.path), "plan": rows, "cost_usd": estimate(shares)}


def estimate(shares: Sequence[Share]) -> float | None:
    """What a run will cost, in USD; None where one of its parts is not known."""
    costs = [share.cost_usd for share in shares]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
