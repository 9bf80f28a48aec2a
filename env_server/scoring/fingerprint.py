"""Says by which code and data an installation judges episodes."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from env_server.arguments import canonical_json

_JUDGES = (".py", ".json", ".jsonl", ".csv", ".toml")


@cache
def scorer_sha256() -> str:
    """Digest of all that makes a score of a replayed episode: validators, metrics, prices.

    Scores with equal digests need not be made again.
    """
    here = Path(__file__).parent
    files = [path for path in sorted(here.iterdir()) if path.suffix in _JUDGES]
    files.append(here.parent / "validators.py")
    parts = [[path.name, path.read_text(encoding="utf-8")] for path in files]
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()
