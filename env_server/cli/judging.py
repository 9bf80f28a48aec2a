"""`railgym score --judge`: a model's opinion on free text, beside the validators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from env_server.cli.exits import Exit, failing_on
from env_server.cli.output import say, with_progress
from env_server.errors import printable

if TYPE_CHECKING:
    from env_server.registry import Registry
    from env_server.scoring.judge import Judge, Question
    from env_server.scoring.score import EpisodeScore

VERDICTS = "verdicts.jsonl"
MAX_DIFFERING = 20
"""Verdicts that are told one by one; the report has them all."""


def open_judge(spec: str, votes: int) -> Judge:
    """Makes the judge of a name.

    Raises:
        Failure: There is no such model, or it cannot be a judge.
    """
    from env_server.scoring.judge import Judge
    from railgym.agents import models

    with failing_on(ValueError):
        return Judge(models.find(spec), votes)


def judged(
    scores: list[EpisodeScore], log: Path, registry: Registry, judge: Judge, path: Path
) -> list[EpisodeScore]:
    """Judges the free text among the answers of a log, and adds verdicts to the scores.

    Args:
        scores: Of the log.
        log: The log.
        registry: What it is replayed with.
        judge: Whom to ask.
        path: The file of verdicts: what stands there is not asked again.

    Raises:
        Failure: The model cannot be asked at all, or the file cannot be read or written.
    """
    from env_server.scoring.judge import JudgeFailed, Verdict
    from env_server.scoring.verdicts import Book, judge_all, with_verdicts
    from railgym.agents import ModelFailed

    asked = _questions(scores, log, registry)
    with failing_on(OSError):
        book = Book(path)
    before = {verdict.key for verdict in book.verdicts}
    with failing_on(JudgeFailed, ModelFailed, code=Exit.STOPPED), failing_on(OSError):
        found = list(with_progress(judge_all(judge, asked, book), "judge ", len(asked)))
    failed = [outcome for outcome in found if isinstance(outcome, JudgeFailed)]
    for outcome in failed:
        say(f"not judged: {outcome}")
    verdicts = [outcome for outcome in found if isinstance(outcome, Verdict)]
    new = [verdict for verdict in verdicts if verdict.key not in before]
    known, tokens = len(verdicts) - len(new), sum(verdict.tokens for verdict in new)
    say(f"{known} verdicts from before and {len(new)} new ones ({tokens:,} tokens) in {path}")
    return with_verdicts(scores, verdicts)


def _questions(scores: list[EpisodeScore], log: Path, registry: Registry) -> list[Question]:
    from env_server.log import NotALog
    from env_server.scoring.judge import question
    from env_server.scoring.trace import traces

    by_episode = {score.episode_id: score for score in scores}
    with failing_on(NotALog):
        found = (
            question(by_episode[trace.episode_id], trace, registry)
            for trace in traces(log, registry)
            if trace.episode_id in by_episode
        )
        return [asked for asked in found if asked is not None]


def words(scores: list[EpisodeScore]) -> str:
    """What a judge made of a run: a line, and one for each verdict that the validators deny."""
    from env_server.scoring.verdicts import opinions

    said = opinions(scores)
    decided = said.answers - said.undecided
    lines = [
        f"judge: {said.answers} answers in free text: {said.same} say what the reference says, "
        f"{said.undecided} undecided; {said.unanimous} unanimous; {said.as_validators} of "
        f"{decided} as the validators have it"
    ]
    for score in said.differing[:MAX_DIFFERING]:
        judged = "the same" if score.metrics["judge/same"] else "different"
        held = "hold" if score.metrics.get("answer") else "do not hold"
        lines.append(
            printable(f"  {score.task_id}, {score.agent}: judge: {judged}; validators {held}")
        )
    if (more := len(said.differing) - MAX_DIFFERING) > 0:
        lines.append(f"  and {more} more, in the report")
    return "\n".join(lines)
