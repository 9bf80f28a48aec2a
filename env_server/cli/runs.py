"""A run: what is missing is played, and all that was asked for is scored by replay.

What came of each trial is read from the log, where it stands whatever became of the process that
played it. On a server of the user's the log stays there, and the server replays it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from env_server.cli.agents import SCRIPTED
from env_server.cli.asked import asked_for
from env_server.cli.connection import connected, ending_on_sigterm, own_server
from env_server.cli.failures import failure_row
from env_server.cli.folder import EPISODES, LOG, SERVER_LOG
from env_server.cli.live import shown
from env_server.cli.options import Access
from env_server.cli.output import say, with_progress
from env_server.cli.pricing import PRICES
from env_server.cli.reuse import Earlier, close_abandoned, earlier_at, earlier_in
from env_server.cli.score import REPORT, SCORES, scores_of, scores_of_server
from env_server.cli.spending import Spending
from env_server.cli.tally import Tally
from railgym._version import __version__

if TYPE_CHECKING:
    from env_server.cli.agents import AgentFor
    from env_server.cli.config import Config
    from env_server.cli.folder import Folder
    from env_server.cli.live import Throttled
    from env_server.cli.trials import Played, Trial
    from env_server.registry import Registry
    from env_server.scoring.prices import Prices
    from env_server.scoring.score import EpisodeScore
    from env_server.scoring.summary import Summary
    from env_server.scoring.trace import Trace
    from railgym.client import Client


class Request(NamedTuple):
    """A run as it was asked for.

    Attributes:
        config: What was asked for.
        access: To the user's server.
        registry: The environments and tasks of a server of its own.
        agents: By name.
        trials: What it comes to.
        prices: What models cost.
    """

    config: Config
    access: Access
    registry: Registry
    agents: Mapping[str, AgentFor]
    trials: Sequence[Trial]
    prices: Prices


class Outcome(NamedTuple):
    """What came of a run.

    Attributes:
        summary: Of the trials that were asked for, as far as there are episodes of them.
        failed: Trials that could not be played.
        tally: How far it came, and what it cost.
        prices: What models cost.
    """

    summary: Summary
    failed: Sequence[Played]
    tally: Tally
    prices: Prices

    @property
    def left(self) -> int:
        """Trials that were not begun."""
        return self.tally.total().left

    @property
    def stopped(self) -> str | None:
        """Why an agent stopped the run; None: none did."""
        from railgym.agents import RunStopped

        errors = (played.error for played in self.failed)
        return next((str(error) for error in errors if isinstance(error, RunStopped)), None)


class Run:
    """Plays and scores what was asked for, in a folder."""

    def __init__(self, folder: Folder, request: Request) -> None:
        """Begins with what it is to do.

        Args:
            folder: Must be taken to play, see `Folder.taken`.
            request: What was asked for.
        """
        self._folder = folder
        self._request = request
        self._config = request.config
        self._tally = Tally(Spending(request.prices))

    def look(self) -> Earlier:
        """Finds out what was played before, and plays nothing."""
        if self._config.address is None:
            return self._earlier_here()
        with connected(self._config.address, self._request.access) as client:
            return self._earlier_at(client)

    def play_and_score(self) -> Outcome:
        """Plays what is missing, and scores all that was asked for.

        Raises:
            Failure: The server does not come up, or is gone.
        """
        folder = self._folder
        folder.write_config(self._about())
        folder.clear_failures()
        if self._config.address is None:
            missing = self._missing(self._earlier_here())
            failed = self._play_here(missing) if missing else []
            scores = scores_of(folder.log, self._request.registry, prices=self._request.prices)
        else:
            address, access = self._config.address, self._request.access
            with ending_on_sigterm(), connected(address, access) as client:
                earlier = self._earlier_at(client)
                close_abandoned(client, earlier)
                failed = self._play(client, self._missing(earlier))
                scores = scores_of_server(client, folder.run, self._request.prices)
        return Outcome(self._summarise(scores), failed, self._tally, self._request.prices)

    def _earlier_here(self) -> Earlier:
        registry, prices = self._request.registry, self._request.prices
        return earlier_in(self._folder, registry, prices, self._tally.spending)

    def _earlier_at(self, client: Client) -> Earlier:
        spending = self._tally.spending
        return earlier_at(client, self._folder.run, self._request.prices, spending)

    def _missing(self, earlier: Earlier) -> list[Trial]:
        finished = {key: score.success for key, score in earlier.finished().items()}
        self._tally.expect(self._request.trials, finished)
        return [trial for trial in self._request.trials if trial.key not in finished]

    def _play_here(self, trials: Sequence[Trial]) -> list[Played]:
        folder, config = self._folder, self._config
        messages = folder.path / SERVER_LOG
        server = own_server(folder.log, messages, config.envs, config.task_paths)
        # It does not come back once it is gone: no patience.
        with server as address, connected(address, patience_seconds=0) as client:
            return self._play(client, trials)

    def _play(self, client: Client, trials: Sequence[Trial]) -> list[Played]:
        """Plays trials, and returns those that could not be played."""
        from env_server.cli.attempt import Attempts, Rules
        from env_server.cli.trials import Pool
        from railgym.errors import Unavailable

        pool, agents, failed = Pool(self._within_budget), self._request.agents, []
        rules = Rules(self._folder.run, self._config.time_limit, pool.stopped)
        attempts = Attempts(client, agents, rules, self._tally)
        with pool, _telling_of_the_stop(), self._shown():
            for played in pool.play(trials, attempts.play, self._config.concurrency):
                self._tally.played(played)
                if played.error is not None:
                    self._folder.add_failure(failure_row(played))
                    failed.append(played)
                if isinstance(played.error, Unavailable):
                    raise played.error
        return failed

    def _shown(self) -> AbstractContextManager[None]:
        title = f"railgym run {self._folder.path.name}"
        return shown(self._tally, _throttles(self._request.agents), title)

    def _within_budget(self) -> bool:
        budget = self._config.budget_usd
        return budget is None or self._tally.spending.total().usd < budget

    def _summarise(self, scores: Iterable[EpisodeScore]) -> Summary:
        """Writes down what the scores of the trials that were asked for amount to."""
        from env_server.scoring.episode_table import write_episodes
        from env_server.scoring.report import write_report
        from env_server.scoring.summary import summarise, write_scores

        folder = self._folder
        keys = {trial.key for trial in self._request.trials}
        summary = summarise(asked_for(scores, keys))
        title, traces, prices = f"Run {folder.path.name}", self._traces(), self._request.prices
        where = LOG if self._config.address is None else self._config.address
        folder.write(SCORES, lambda path: write_scores(summary, path))
        folder.write(EPISODES, lambda path: write_episodes(summary.episodes, path, where))
        folder.write(REPORT, lambda path: write_report(summary, path, title, traces, prices))
        return summary

    def _traces(self) -> Iterable[Trace]:
        """What happened in the episodes, as far as the log is here."""
        from env_server.scoring.trace import traces

        if self._config.address is not None:
            return ()
        return with_progress(traces(self._folder.log, self._request.registry), "report")

    def _about(self) -> dict[str, Any]:
        """What stands in config.json."""
        trials = self._request.trials
        return {
            "railgym": __version__,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            **self._config._asdict(),
            PRICES: self._request.prices.kept(),
            "trials": len(trials),
            "keys": [trial.key for trial in trials],
            "sha256": {t.target.name: t.target.task.sha256 for t in trials if t.target.task},
        }


@contextmanager
def _telling_of_the_stop() -> Iterator[None]:
    """Says at once that a signal has come, for it takes a while until all is in order."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say("Stopping; Ctrl-C again to end at once.")
        raise


def _throttles(agents: Mapping[str, AgentFor]) -> dict[str, Throttled]:
    """The throttles of the models that play."""
    found = {}
    for name, agent_for in agents.items():
        throttle = None if name in SCRIPTED else getattr(agent_for(None), "throttle", None)
        if throttle is not None:
            found[name] = throttle
    return found
