"""Holds a log against what clients were told: every step that was acknowledged must be in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from env_server.log import episodes


class Checked(NamedTuple):
    """What a log holds, and what is wrong with it.

    Attributes:
        steps: How many there are.
        missing: Episodes that lack an acknowledged step, or hold another state after it.
        problems: What is wrong with the records themselves.
    """

    steps: int
    missing: list[str]
    problems: list[str]

    def broken(self) -> list[str]:
        """What should not be, in words."""
        found = []
        if self.missing:
            found.append(
                f"{len(self.missing):,} episodes lack what was acknowledged: {self.missing[0]}"
            )
        if self.problems:
            found.append(f"{len(self.problems):,} problems in the log: {self.problems[0]}")
        return found


def check_log(log: Path, acknowledged: Mapping[str, Sequence[tuple[int, str]]]) -> Checked:
    """Reads a log.

    Args:
        log: Its directory.
        acknowledged: By session, of each of its episodes, the latest step that a client was told
            of, and the state hash (hex) after it.
    """
    steps, problems = 0, []
    left = {
        f"{session_id}.{number}": told
        for session_id, told_of in acknowledged.items()
        for number, told in enumerate(told_of, start=1)
    }
    missing = []
    for logged in episodes(log):
        steps += len(logged.steps)
        if logged.problem:
            problems.append(f"{logged.episode_id}: {logged.problem.reason}")
        latest, state_hash = left.pop(logged.episode_id, (0, None))
        hashes = [logged.started.state_hash if logged.started else b""]
        hashes += [taken.transition.state_hash for taken in logged.steps]
        if len(hashes) <= latest or state_hash not in (None, hashes[latest].hex()):
            missing.append(f"{logged.episode_id}, step {latest}")
    missing += [f"{episode_id}, as a whole" for episode_id in left]
    return Checked(steps, missing, problems)
