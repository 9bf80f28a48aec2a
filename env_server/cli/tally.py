"""How far a run has come: trials by environment, success, faults, time. It draws nothing.

Success here is what the server said at the end of each episode; scores are made from the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from env_server.cli.spending import Spending

if TYPE_CHECKING:
    from env_server.cli.trials import Played, Trial
    from railgym.actions import Transition


@dataclass(slots=True)
class Count:
    """What has become of the trials of one environment, or of all.

    Attributes:
        trials: That were asked for.
        reused: That were played before.
        played: That were played now and came to an end.
        failed: That could not be played.
        judged: Of tasks, with a success or none: reused and played.
        won: Of these, those that succeeded.
        faults: Steps with a fault, of those that are played now.
    """

    trials: int = 0
    reused: int = 0
    played: int = 0
    failed: int = 0
    judged: int = 0
    won: int = 0
    faults: int = 0

    @property
    def left(self) -> int:
        """Trials that have not been played."""
        return self.trials - self.reused - self.played - self.failed


class Tally:
    """Counts what happens in a run. Threads may share it.

    Attributes:
        spending: What models have used, earlier runs in the same folder included.
    """

    def __init__(self, spending: Spending) -> None:
        """Begins with nothing."""
        self.spending = spending
        self._lock = threading.Lock()
        self._counts: dict[str, Count] = {}
        self._since = time.monotonic()

    def expect(self, trials: Iterable[Trial], reused: Mapping[str, bool | None]) -> None:
        """Notes what is asked for, and begins to measure time.

        Args:
            trials: All of them.
            reused: By the key of those that were played before, whether they succeeded.
        """
        for trial in trials:
            count = self._counts.setdefault(trial.target.env_id, Count())
            count.trials += 1
            if trial.key in reused:
                count.reused += 1
                count.judged += reused[trial.key] is not None
                count.won += reused[trial.key] is True
        self._since = time.monotonic()

    def claimed(self, trial: Trial, claim: Mapping[str, Any]) -> None:
        """A model was called, or could not be."""
        self.spending.add(trial.agent, claim)

    def stepped(self, trial: Trial, seen: Transition) -> None:
        """A step was taken."""
        if trial.target.task is not None and "fault" in seen.info:
            with self._lock:
                self._counts[trial.target.env_id].faults += 1

    def played(self, played: Played) -> None:
        """A trial came to its end, or could not be played."""
        with self._lock:
            count = self._counts[played.trial.target.env_id]
            if played.error is not None:
                count.failed += 1
                return
            count.played += 1
            if played.trial.target.task is not None:
                count.judged += 1
                count.won += played.reward == 1

    def by_env(self) -> dict[str, Count]:
        """What has become of the trials of each environment."""
        with self._lock:
            return {env_id: replace(count) for env_id, count in self._counts.items()}

    def total(self) -> Count:
        """What has become of all trials."""
        total = Count()
        for count in self.by_env().values():
            for name in Count.__slots__:
                setattr(total, name, getattr(total, name) + getattr(count, name))
        return total

    def elapsed(self) -> float:
        """Seconds since the first trial could begin."""
        return time.monotonic() - self._since

    def seconds_left(self) -> float | None:
        """Seconds that the rest will take at the pace so far; None: there is no pace yet."""
        total = self.total()
        done = total.played + total.failed
        return self.elapsed() / done * total.left if done else None
