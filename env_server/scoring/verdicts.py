"""The verdicts of judges, in a file: each stands there once, and what stands there is not asked.

So a run can be judged again without a model, a key or a network, and with the same result.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from env_server.arguments import canonical_json
from env_server.scoring.judge import Judge, JudgeFailed, Question, Verdict
from env_server.scoring.score import EpisodeScore

THREADS = 8
"""Episodes that are judged at the same time, as far as the model's throttle lets them."""


VERDICTS = "verdicts.jsonl"
"""The file, beside the log that they are on."""

_VERDICT = TypeAdapter(Verdict)


class Opinions(NamedTuple):
    """What the verdicts on a run amount to.

    Attributes:
        answers: How many were judged.
        same: How many say what the reference says.
        undecided: How many had no majority.
        unanimous: How many had equal votes.
        as_validators: How many of those that were decided came out as the validators have it.
        differing: The episodes of the others.
    """

    answers: int
    same: int
    undecided: int
    unanimous: int
    as_validators: int
    differing: list[EpisodeScore]


class Bench(NamedTuple):
    """What one judge made of a run.

    Attributes:
        judge: Who.
        said: Its verdicts, counted.
        tokens: That they took.
        differing: Verdicts that came out otherwise than the validators, with their episodes.
    """

    judge: str
    said: Opinions
    tokens: int
    differing: list[tuple[EpisodeScore, Verdict]]


class Book:
    """A file of verdicts: one JSON line each."""

    def __init__(self, path: Path) -> None:
        """Reads the file, if there is one; a line that is no verdict is left out.

        Raises:
            OSError: It cannot be read.
        """
        self._path = path
        self._known: dict[str, Verdict] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self._is_cut = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            try:
                verdict = _VERDICT.validate_python(json.loads(line))
                self._known[verdict.key] = verdict
            except ValueError:
                continue

    @property
    def verdicts(self) -> list[Verdict]:
        """All verdicts, in the order in which they were given."""
        return list(self._known.values())

    def find(self, key: str) -> Verdict | None:
        """A verdict by its key."""
        return self._known.get(key)

    def add(self, verdict: Verdict) -> None:
        """Adds a verdict to the file.

        Raises:
            OSError: The file cannot be written.
        """
        with self._path.open("a", encoding="ascii") as file:
            begin = "\n" if self._is_cut else ""
            file.write(f"{begin}{canonical_json(verdict._asdict())}\n")
        self._is_cut = False
        self._known[verdict.key] = verdict


def judge_all(
    judge: Judge, questions: Sequence[Question], book: Book
) -> Iterator[Verdict | JudgeFailed]:
    """Gives a verdict on each question in turn, and asks for those that the book has not.

    Raises:
        OSError: The book cannot be written.
        JudgeFailed: No question can be asked, for instance because the key is wrong.
        ModelFailed: There is no key.
    """
    new = [question for question in questions if book.find(judge.key(question)) is None]
    with ThreadPoolExecutor(THREADS) as pool:
        asked = {question: pool.submit(_try, judge, question) for question in new}
        try:
            for question in questions:
                found = book.find(judge.key(question)) or asked[question].result()
                if question in asked and isinstance(found, Verdict):
                    book.add(found)
                yield found
        finally:
            pool.shutdown(cancel_futures=True)


def _try(judge: Judge, question: Question) -> Verdict | JudgeFailed:
    """Asks; a failure that concerns this question alone is an outcome."""
    try:
        return judge.ask(question)
    except JudgeFailed as e:
        if e.failure.kind == "stop":
            raise
        return e


def with_verdicts(
    scores: Iterable[EpisodeScore], verdicts: Iterable[Verdict]
) -> list[EpisodeScore]:
    """Adds verdicts to valid scores as metrics: "judge/same" and "judge/agreement"."""
    by_episode = {verdict.episode_id: verdict for verdict in verdicts}
    judged = []
    for score in scores:
        verdict = by_episode.get(score.episode_id)
        if verdict is not None and score.valid:
            metrics = {**score.metrics, "judge/agreement": verdict.agreement}
            if verdict.same is not None:
                metrics["judge/same"] = float(verdict.same)
            score = score._replace(metrics=metrics)
        judged.append(score)
    return judged


def opinions(scores: Iterable[EpisodeScore]) -> Opinions:
    """Counts verdicts, and how they stand to the validators' own of the answer."""
    judged = [score for score in scores if "judge/agreement" in score.metrics]
    decided = [score for score in judged if "judge/same" in score.metrics]
    differing = [s for s in decided if s.metrics["judge/same"] != s.metrics.get("answer")]
    return Opinions(
        answers=len(judged),
        same=sum(score.metrics["judge/same"] == 1 for score in decided),
        undecided=len(judged) - len(decided),
        unanimous=sum(score.metrics["judge/agreement"] == 1 for score in judged),
        as_validators=len(decided) - len(differing),
        differing=differing,
    )


def benches(scores: Sequence[EpisodeScore], verdicts: Iterable[Verdict]) -> list[Bench]:
    """What each judge made of these scores; one that judged none of them is left out."""
    by_judge: dict[str, dict[str, Verdict]] = defaultdict(dict)
    for verdict in verdicts:
        by_judge[verdict.judge][verdict.episode_id] = verdict
    found = []
    for judge, given in by_judge.items():
        judged = with_verdicts(map(_unjudged, scores), given.values())
        said = opinions(judged)
        ids = {score.episode_id for score in judged if "judge/agreement" in score.metrics}
        tokens = sum(given[episode_id].tokens for episode_id in ids)
        differing = [(score, given[score.episode_id]) for score in said.differing]
        if ids:
            found.append(Bench(judge, said, tokens, differing))
    return found


def _unjudged(score: EpisodeScore) -> EpisodeScore:
    """The score without what a judge said of it."""
    metrics = {n: value for n, value in score.metrics.items() if not n.startswith("judge/")}
    return score._replace(metrics=metrics)
