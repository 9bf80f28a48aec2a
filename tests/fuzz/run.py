"""Fuzzes every decoder that reads bytes from outside, with atheris: `make fuzz`.

Each target runs in a process of its own, from a corpus of golden logs and bundled tasks that
grows from run to run in runs/fuzz. A finding is an input that makes a target raise; it is kept
there, and ends the target: `run.py TARGET --input FILE` runs it again.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import seeds
import targets

HERE = Path(__file__).parent
OUT = Path("runs/fuzz")
SLOW_SECONDS = 20
MEMORY_MB = 4_096


class Result(NamedTuple):
    """What came of a target; `finding` is empty where nothing was found."""

    target: str
    executions: int
    finding: str


def main() -> int:
    """Fuzzes the targets that were asked for; 1 where there is a finding."""
    given = _arguments()
    if given.input:
        targets.TARGETS[given.target](given.input.read_bytes())
        return 0
    names = list(targets.TARGETS) if given.target == "all" else [given.target]
    results = [_fuzz(name, given.seconds) for name in names]
    for name, executions, finding in results:
        print(f"{name:16} {executions:>10,} executions   {finding or 'nothing found'}")
    return int(any(result.finding for result in results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=["all", *targets.TARGETS])
    parser.add_argument("--seconds", type=int, default=60, help="for each target; default: 60")
    parser.add_argument("--input", type=Path, metavar="FILE", help="run the target on this once")
    return parser.parse_args()


def _fuzz(target: str, seconds: int) -> Result:
    print(f"fuzzing {target} for {seconds} s ...", file=sys.stderr, flush=True)
    corpus, begin = OUT / target / "corpus", OUT / target / "seeds"
    corpus.mkdir(parents=True, exist_ok=True)
    begin.mkdir(exist_ok=True)
    for seed in seeds.seeds(target):
        (begin / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    limits = [
        f"-max_total_time={seconds}",
        f"-timeout={SLOW_SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
    ]
    sizes = [f"-max_len={seeds.MAX_BYTES}", "-len_control=0"]
    where = [f"-artifact_prefix={OUT / target}/finding-", "-print_final_stats=1"]
    command = [sys.executable, HERE / "one.py", target, corpus, begin, *limits, *sizes, *where]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    (OUT / target / "output.txt").write_text(done.stdout + done.stderr)
    return Result(target, _executions(done.stderr), _finding(done))


def _executions(output: str) -> int:
    found = re.search(r"number_of_executed_units: (\d+)", output)
    return int(found[1]) if found else 0


def _finding(done: subprocess.CompletedProcess[str]) -> str:
    """What ended a target, in one line."""
    if done.returncode == 0:
        return ""
    kept = re.search(r"Test unit written to (\S+)", done.stderr)
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    error = next((line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)), "")
    summary = next((line for line in lines if line.startswith("SUMMARY")), "")
    why = error or summary or f"exit code {done.returncode}"
    return f"{why[:120]}   {kept[1] if kept else ''}"


if __name__ == "__main__":
    sys.exit(main())
