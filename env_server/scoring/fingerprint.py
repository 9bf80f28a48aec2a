"""Says by which code and data an installation judges episodes."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from env_server.arguments import canonical_json

_JUDGES = (".py", ".json", ".jsonl", ".csv", ".toml")


@cache
def scorer_sha256() -> str:
    """Digest of all that makes a score of a log: the environments, validators, metrics, prices.

    Scores with equal digests need not be made again.
    """
    parts = [[path.name, path.read_text(encoding="utf-8")] for path in judging_files()]
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def judging_files() -> list[Path]:
    """The files that a score depends on, beside the log and the task: a replay runs most of them.

    Environments and price tables of the user's own are not among them.
    """
    scoring = Path(__file__).parent
    folders = (scoring.parent, scoring.parent / "envs", scoring)
    return [p for folder in folders for p in sorted(folder.iterdir()) if p.suffix in _JUDGES]
