"""What must hold when the chaos is over: the journals of the clients against the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from env_server.log import LoggedEpisode, episodes
from env_server.registry import Registry
from env_server.scoring.score import Scorer

SHOWN = 20
"""Complaints of one kind that are shown."""


class Acknowledged(NamedTuple):
    """A step as a client saw it."""

    action: bytes
    state_hash: bytes


class Found(NamedTuple):
    """What the log holds, and what is wrong with it."""

    episodes: int
    steps: int
    unacknowledged: int
    outcomes: Counter[str]
    ends: Counter[str]
    broken: list[str]


def check(log_dir: Path, journals: Iterable[Path], registry: Registry) -> Found:
    """Reads and replays the whole log, and looks up every step that was acknowledged."""
    seen, broken = read_journals(journals)
    scorer = Scorer(registry)
    outcomes: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    count: Counter[tuple[str, int]] = Counter()
    number = 0
    for logged in episodes(log_dir):
        number += 1
        score = scorer.score(logged)
        outcomes[score.outcome] += 1
        ends[score.end_reason or "none"] += 1
        if score.outcome != "VERIFIED":
            broken.append(f"{score.episode_id or logged.session_id}: {score.detail}")
        broken += _compare(logged, seen, count)
    for key in seen.keys() - count.keys():
        broken.append(f"{key[0]} step {key[1]}: acknowledged, and not in the log")
    broken += [f"{key[0]} step {key[1]}: {n} times in the log" for key, n in count.items() if n > 1]
    return Found(number, len(count), len(count.keys() - seen.keys()), outcomes, ends, broken)


def read_journals(
    paths: Iterable[Path],
) -> tuple[dict[tuple[str, int], Acknowledged], list[str]]:
    """Reads what was acknowledged, by episode and step; and steps that were so to two clients."""
    seen: dict[tuple[str, int], Acknowledged] = {}
    broken: list[str] = []
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            key = row["episode"], row["step"]
            if key in seen:
                broken.append(f"{key[0]} step {key[1]}: acknowledged twice")
            seen[key] = Acknowledged(bytes.fromhex(row["action"]), bytes.fromhex(row["hash"]))
    return seen, broken


def _compare(
    logged: LoggedEpisode,
    seen: dict[tuple[str, int], Acknowledged],
    count: Counter[tuple[str, int]],
) -> list[str]:
    wrong: list[str] = []
    for taken in logged.steps:
        key = logged.episode_id, taken.step
        count[key] += 1
        if (step := seen.get(key)) is None:
            continue  # its reply was lost on the way, and the client gave up
        where = f"{key[0]} step {key[1]}"
        if taken.action.SerializeToString(deterministic=True) != step.action:
            wrong.append(f"{where}: another action in the log")
        if taken.transition.state_hash != step.state_hash:
            wrong.append(f"{where}: another state in the log")
    return wrong
