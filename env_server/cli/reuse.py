"""What was played before in the folder of a run, and what of it stands.

A trial is done where the log holds a valid episode with its key: it is never played again. An
attempt that came to no end, or that says nothing of the agent, is replaced by another one. Scores
are taken from scores.json only where the very code that would be used now made them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from env_server.arguments import parse_object
from env_server.cli.agents import SCRIPTED
from env_server.cli.exits import Failure
from env_server.cli.output import with_progress
from env_server.cli.score import SCORES, read_scores, scores_of_server

if TYPE_CHECKING:
    from env_server.cli.folder import Folder
    from env_server.cli.spending import Spending
    from env_server.cli.trials import Trial
    from env_server.log import LoggedEpisode
    from env_server.registry import Registry
    from env_server.scoring.prices import Prices
    from env_server.scoring.score import EpisodeScore
    from railgym.client import Client


class Standing(StrEnum):
    """What is to be done about a trial."""

    REUSED = "reused"
    RESCORED = "rescored"
    RERUN = "rerun"
    NEW = "new"


class Earlier(NamedTuple):
    """What the log of a run holds.

    Attributes:
        scores: Of its episodes, in the order of the log.
        kept: Ids of the episodes whose scores stood already.
    """

    scores: Sequence[EpisodeScore] = ()
    kept: frozenset[str] = frozenset()

    def finished(self) -> dict[str, EpisodeScore]:
        """The first valid score of each key."""
        from env_server.scoring.attempts import LABEL

        found: dict[str, EpisodeScore] = {}
        for score in self.scores:
            if score.valid and LABEL in score.labels:
                found.setdefault(score.labels[LABEL], score)
        return found

    def standing(self, trials: Iterable[Trial]) -> dict[str, Standing]:
        """What is to be done about each trial, by its key."""
        from env_server.scoring.attempts import LABEL

        finished = self.finished()
        tried = {score.labels.get(LABEL) for score in self.scores}
        found = {}
        for key in (trial.key for trial in trials):
            if key in finished:
                kept = finished[key].episode_id in self.kept
                found[key] = Standing.REUSED if kept else Standing.RESCORED
            else:
                found[key] = Standing.RERUN if key in tried else Standing.NEW
        return found


def earlier_in(folder: Folder, registry: Registry, prices: Prices, spending: Spending) -> Earlier:
    """Reads the log of a folder, and scores what has no score yet.

    Args:
        folder: Of the run.
        registry: What its episodes are replayed with.
        prices: What models cost.
        spending: Is told of every claim in the log.
    """
    from env_server.log import NotALog, episodes
    from env_server.scoring.claims import read_claims
    from env_server.scoring.score import Scorer

    known, kept = _known_scores(folder), set()
    scorer, scores = Scorer(registry, prices=prices), []
    try:
        for logged in with_progress(episodes(folder.log), "read  "):
            _spend(logged, spending)
            score = known.get(logged.episode_id)
            if score is not None and _is_whole(logged, score.steps):
                kept.add(score.episode_id)
                scores.append(score.priced(prices, read_claims(logged.claims).calls))
            else:
                scores.append(scorer.score(logged))
    except NotALog:
        return Earlier()  # nothing was ever played
    return Earlier(scores, frozenset(kept))


def earlier_at(client: Client, run: str, prices: Prices, spending: Spending) -> Earlier:
    """Lets a server score what its log holds of a run.

    Args:
        client: Of the server.
        run: Label of the run's sessions.
        prices: What models cost.
        spending: Is told of what each episode used.
    """
    scores = scores_of_server(client, run, prices)
    for score in scores:
        spending.add_scored(score.agent, score.metrics)
    return Earlier(scores, frozenset(score.episode_id for score in scores))


def close_abandoned(client: Client, earlier: Earlier) -> None:
    """Ends the sessions that a run left behind when it was killed: they take up room.

    Args:
        client: Of the server.
        earlier: Of a run that nobody is at work on.
    """
    from railgym.errors import NotResumable, SessionClosed, SessionExpired

    for score in earlier.scores:
        if score.end_reason is None and score.episode_id:
            with suppress(NotResumable, SessionClosed, SessionExpired):
                client.resume(score.episode_id.rpartition(".")[0]).close("api_error")


def _known_scores(folder: Folder) -> Mapping[str, EpisodeScore]:
    """Valid scores that the same code made, by episode."""
    from env_server.scoring.fingerprint import scorer_sha256

    path = folder.path / SCORES
    try:
        same = json.loads(path.read_text(encoding="utf-8"))["scorer_sha256"] == scorer_sha256()
        return {s.episode_id: s for s in read_scores(path) if s.valid} if same else {}
    except (OSError, ValueError, KeyError, TypeError, Failure):
        return {}  # none yet, or none that this version can read: they are made again


def _is_whole(logged: LoggedEpisode, steps: int) -> bool:
    """Whether an episode has so many steps and its end, and no damage."""
    return logged.ended is not None and logged.problem is None and logged.latest == steps


def _spend(logged: LoggedEpisode, spending: Spending) -> None:
    agent = logged.started.labels.get("agent", "") if logged.started else ""
    for claim in logged.claims:
        spending.add(agent, parse_object(claim.claim_json))


class Share(NamedTuple):
    """What a run would do for one agent in one environment.

    Attributes:
        agent: The agent.
        env_id: The environment.
        counts: Trials by what is to be done about them.
        tokens: That those to be played will use, by what earlier ones did; None: not known.
        cost_usd: What they will cost likewise; None: not known.
    """

    agent: str
    env_id: str
    counts: Mapping[Standing, int]
    tokens: float | None
    cost_usd: float | None

    @property
    def to_play(self) -> int:
        """Trials that will be played."""
        return self.counts[Standing.RERUN] + self.counts[Standing.NEW]


def shares(trials: Sequence[Trial], earlier: Earlier) -> list[Share]:
    """Says what a run would do, by agent and environment."""
    standing = earlier.standing(trials)
    groups: dict[tuple[str, str], list[Standing]] = {}
    for trial in trials:
        where = trial.agent, trial.target.env_id
        groups.setdefault(where, []).append(standing[trial.key])
    found = []
    for (agent, env_id), members in sorted(groups.items()):
        counts = {kind: members.count(kind) for kind in Standing}
        share = Share(agent, env_id, counts, None, None)
        tokens = _mean(earlier, agent, env_id, "total_tokens")
        cost = _mean(earlier, agent, env_id, "cost_usd")
        found.append(
            share._replace(
                tokens=_times(tokens, share.to_play), cost_usd=_times(cost, share.to_play)
            )
        )
    return found


def _mean(earlier: Earlier, agent: str, env_id: str, metric: str) -> float | None:
    """Mean of a metric over an agent's episodes: of this environment, or else of all."""
    if agent in SCRIPTED:
        return 0.0
    own = [s for s in earlier.scores if s.agent == agent and metric in s.metrics]
    here = [s for s in own if s.env_id == env_id] or own
    return sum(s.metrics[metric] for s in here) / len(here) if here else None


def _times(mean: float | None, count: int) -> float | None:
    """What so many trials will use; none of them use nothing."""
    if count == 0:
        return 0.0
    return None if mean is None else mean * count
