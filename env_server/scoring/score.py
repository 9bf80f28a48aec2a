"""The score of an episode: how it ended, whether it is valid, and what broke first.

A log is replayed and compared with itself before anything is measured. Without a VERIFIED replay
there is no score, and what is no fault of the agent is invalid and never counts as 0. Nothing
here opens a socket or asks a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from env_server.episode import Episode, Reply
from env_server.log import LoggedEpisode, episodes
from env_server.registry import Registry
from env_server.scoring import claims, replay
from env_server.scoring.faults import first_fault
from env_server.scoring.metrics import measure
from env_server.scoring.prices import NO_SOURCE, Prices, prices_with
from env_server.scoring.replay import Difference, Outcome, Unreplayable
from env_server.scoring.replayed import GoldBook, Replayed
from railgym.codec import end_reason_from_proto
from railgym.scores import ModelUsage

Drift: TypeAlias = Literal["refuse", "label"]

VALID_ENDS = replay.OWN_ENDS | {"time_limit", "client_closed"}
"""Ends for which an agent answers. The others are faults of what is around it."""

_NAME_LENGTH = 100
"""Characters of a tool's name that are kept: an agent may call what it likes."""


class EpisodeScore(NamedTuple):
    """What a replay made of an episode, and beside it what its agent claims to have used.

    Attributes:
        episode_id: "SESSION_ID.N"; empty for damage to a log that no episode can be named for.
        env_id: The environment; empty where that is not known.
        task_id: Empty: no task.
        level: Of the task; empty without one.
        labels: Of the session.
        outcome: What became of the replay.
        step: Where the record is wrong, 0 for the reset; 0 too where nothing is.
        detail: What is wrong with it; empty where nothing is.
        end_reason: How the episode ended by its record; None: it did not.
        valid: Whether it says something of the agent.
        invalid_reason: "diverged", "unreplayable", "unfinished", "duplicate", "superseded", or
            the end that is none of the agent's; None where it is valid.
        success: None without a task, and wherever it is invalid.
        reward: Sum of the recomputed rewards; None wherever it is invalid, and where the sum is
            not finite.
        first_fault: The capability that broke first, see `faults`; None: none.
        metrics: By name; one that does not apply is absent. Those of claims do not need a valid
            episode: what was used was used.
        steps: Steps that were replayed.
        verdict: By validator, whether it held; None where the end was not judged.
        drifted: The score stands although the replay diverged.
        task_sha256: Of the task, as recorded; empty: no task.
        fault: Code of the first step with a fault; None: none.
        tools_used: Tools that were called, each once, in the order of their first calls.
        models: What was used of each model, as claimed.
        temperature: As claimed; None where nothing was, or where calls differ.
        price_source: The price tables behind the metric "cost_usd", by name and date; "none"
            where there is no such metric.
    """

    episode_id: str
    env_id: str
    task_id: str
    level: str
    labels: dict[str, str]
    outcome: Outcome
    step: int = 0
    detail: str = ""
    end_reason: str | None = None
    valid: bool = False
    invalid_reason: str | None = None
    success: bool | None = None
    reward: float | None = None
    first_fault: str | None = None
    metrics: dict[str, float] = {}  # noqa: RUF012
    steps: int = 0
    verdict: dict[str, bool] | None = None
    drifted: bool = False
    task_sha256: str = ""
    fault: str | None = None
    tools_used: list[str] = []  # noqa: RUF012
    models: list[ModelUsage] = []  # noqa: RUF012
    temperature: float | None = None
    price_source: str = NO_SOURCE

    @property
    def agent(self) -> str:
        """The label "agent", with the label "rails" where tools were not shown as they are.

        Empty where there is none. What has other rails is never pooled.
        """
        agent, rails = self.labels.get("agent", ""), self.labels.get("rails", "")
        return f"{agent} [{rails}]" if rails else agent

    def to_json(self) -> dict[str, Any]:
        """The score as a JSON object, without NaN or infinities."""
        return {**self._asdict(), "models": [usage._asdict() for usage in self.models]}

    def without_result(self, reason: str) -> EpisodeScore:
        """The score as one that is not valid; what was used stays."""
        used = {name: value for name, value in self.metrics.items() if name in claims.METRICS}
        return self._replace(
            valid=False,
            invalid_reason=reason,
            success=None,
            reward=None,
            first_fault=None,
            metrics=used,
        )

    def priced(self, prices: Prices, calls: Sequence[ModelUsage] = ()) -> EpisodeScore:
        """The score with the cost that these prices give; `calls` as in `Prices.cost`."""
        cost = prices.cost(self.models, calls)
        metrics = {name: value for name, value in self.metrics.items() if name != "cost_usd"}
        if cost.usd is not None:
            metrics["cost_usd"] = cost.usd
        return self._replace(metrics=metrics, price_source=cost.source)


class Scorer:
    """Scores the episodes of logs against the environments and tasks of a registry."""

    def __init__(
        self, registry: Registry, drift: Drift = "refuse", prices: Prices | None = None
    ) -> None:
        """Makes a scorer; gold solutions are played once for all its episodes.

        Args:
            registry: What episodes are replayed with.
            drift: "refuse": an episode that diverges has no score. "label": it goes on with what
                was recomputed, and its score says that it drifted.
            prices: What models cost; None: as it stands in the table that comes with Railgym.
        """
        self._registry = registry
        self._drift = drift
        self._prices = prices or prices_with()
        self._golds = GoldBook(registry)

    def score(self, logged: LoggedEpisode) -> EpisodeScore:
        """Replays an episode and scores it. Never raises for what stands in a log."""
        blank = self._blank(logged)
        if logged.problem is not None:
            step, why, place = logged.problem
            return blank._replace(step=step, detail=f"{place}: {why}")
        if logged.started is None and logged.faults:
            detail = "the environment failed when it was reset"
            return blank._replace(detail=detail, invalid_reason="env_error")
        replies: list[Reply] = []
        try:
            episode, difference = self._replay(logged, replies)
            gold = self._golds.find(episode)
        except Unreplayable as e:
            return blank._replace(step=e.step, detail=str(e))
        except Exception as e:
            # An environment or a validator may raise anything: that is a fault of theirs, which
            # must neither count against the agent nor keep the other episodes from their scores.
            detail = f"{type(e).__name__} after step {len(replies)}"
            return blank._replace(step=len(replies), detail=detail)
        score = self._compared(blank, episode, difference)
        if score.invalid_reason is not None:
            return score
        return _measured(score, Replayed(episode, replies, gold))

    def _blank(self, logged: LoggedEpisode) -> EpisodeScore:
        started = logged.started
        task_id = started.task_id if started else ""
        task = self._registry.tasks.get(task_id) if task_id else None
        claimed = claims.read_claims(logged.claims)
        blank = EpisodeScore(
            episode_id=logged.episode_id,
            env_id=started.env_id if started else "",
            task_id=task_id,
            level=task.level if task else "",
            labels=dict(started.labels) if started else {},
            outcome=Outcome.UNREPLAYABLE,
            end_reason=end_reason_from_proto(logged.ended.reason) if logged.ended else None,
            invalid_reason="unreplayable",
            metrics=claimed.metrics,
            task_sha256=started.task_sha256 if started else "",
            models=claimed.models,
            temperature=claimed.temperature,
        )
        return blank.priced(self._prices, claimed.calls)

    def _replay(
        self, logged: LoggedEpisode, replies: list[Reply]
    ) -> tuple[Episode, Difference | None]:
        """Runs an episode again, and notes its replies as they come."""
        if logged.started is None:
            raise Unreplayable("the record of its start is missing")
        episode, entry, difference = replay.begin(logged.started, self._registry)
        for taken in logged.steps:
            if difference is not None and (self._drift == "refuse" or episode.end is not None):
                break
            reply, found = replay.follow(episode, entry, taken)
            replies.append(reply)
            difference = difference or found
        if difference is None and logged.ended is not None:
            difference = replay.finish(episode, logged.ended)
        return episode, difference

    def _compared(
        self, blank: EpisodeScore, episode: Episode, difference: Difference | None
    ) -> EpisodeScore:
        """Says what the replay found, and whether there is something to measure."""
        found = blank._replace(
            outcome=Outcome.VERIFIED,
            steps=episode.latest,
            invalid_reason=_invalid(blank.end_reason, episode),
        )
        if difference is None:
            return found
        found = found._replace(
            outcome=Outcome.DIVERGED, step=difference.step, detail=difference.detail
        )
        if self._drift == "refuse":
            return found._replace(invalid_reason="diverged")
        return found._replace(drifted=True)


def score_episode(logged: LoggedEpisode, registry: Registry) -> EpisodeScore:
    """Replays one episode and scores it; a `Scorer` is quicker for many."""
    return Scorer(registry).score(logged)


def score_log(
    path: Path, registry: Registry, drift: Drift = "refuse", prices: Prices | None = None
) -> Iterator[EpisodeScore]:
    """Scores the episodes of a log as they are read.

    Args:
        path: A directory of segments, or one segment.
        registry: What they are replayed with.
        drift: See `Scorer`.
        prices: See `Scorer`.

    Raises:
        NotALog: There is nothing at the path, or something else than a log.
    """
    scorer = Scorer(registry, drift, prices)
    for logged in episodes(path):
        yield scorer.score(logged)


def _measured(score: EpisodeScore, run: Replayed) -> EpisodeScore:
    fault = first_fault(run, score.end_reason)
    metrics = measure(run)
    return score._replace(
        valid=True,
        success=None if run.task is None else run.success,
        reward=metrics.get("total_reward"),
        first_fault=None if fault is None else fault.value,
        metrics={**score.metrics, **metrics},
        verdict=run.episode.verdict,
        fault=next(iter(run.faults.values()), None),
        tools_used=list(dict.fromkeys(call.name[:_NAME_LENGTH] for call in run.episode.calls)),
    )


def _invalid(end: str | None, episode: Episode) -> str | None:
    """Why an episode that was replayed to its end says nothing of the agent; None: it does."""
    if end is None:
        return "unfinished"
    if end not in VALID_ENDS:
        return end
    return "unfinished" if end in replay.OWN_ENDS and episode.end is None else None
