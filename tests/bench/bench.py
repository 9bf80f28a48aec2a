"""Measures speed and size, as ratios within one run: `make bench`.

Everything that is compared runs side by side, in rounds that take turns; a figure is the median
of its rounds, a ratio the median of the rounds' ratios. On a shared machine trust the ratios, not
the figures. `--quick` makes everything short (to try the script, not to quote it).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contest
import parts
import report
from contestants import CONTESTANTS, UNARY, UNARY_ECHO
from targets import Row, held

PARTS: dict[str, Callable[[bool], list[Row]]] = {
    "replay": parts.replay,
    "memory": parts.memory,
    "capacity": parts.capacity,
}
CONTESTS = {
    "contest": [contestant.name for contestant in CONTESTANTS],
    "unary": [UNARY_ECHO, UNARY],
}
SESSIONS = (1, 64, 1_000, 5_000)
OUT = Path("runs/bench")


def main() -> int:
    """Runs the parts that were asked for, and shows what they found."""
    given = _arguments()
    machine = _machine()
    rows: list[Row] = []
    results: list[contest.Result] = []
    for name in given.parts or ["replay", "memory", "capacity", "contest"]:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        if name in CONTESTS:
            results += _hold_contests(CONTESTS[name], given)
        else:
            rows += PARTS[name](given.quick)
    rows += held(results)
    machine["load average after"] = os.getloadavg()
    text = report.as_json(machine, results, rows)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "bench.json").write_text(text)
    if results:
        report.draw(results, given.out / "bench.png")
    if given.json:
        print(text)
    else:
        report.print_contest(results)
        report.print_rows(rows)
        print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"written to {given.out}", file=sys.stderr)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    known = [*PARTS, *CONTESTS]
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--quick", action="store_true", help="short rounds")
    parser.add_argument("--out", type=Path, default=OUT, help=f"default: {OUT}")
    parser.add_argument("--sessions", type=int, nargs="+", default=SESSIONS, help="of the contest")
    parser.add_argument("--clients", type=int, default=1, help="client processes a contestant")
    parser.add_argument("--rounds", type=int, help="of the contest; default: 9, or 3 if quick")
    parser.add_argument("--seconds", type=float, help="of a round; default: 2, or 0.3 if quick")
    parser.add_argument("--only", nargs="+", help="contestants whose names contain one of these")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(known)}; default: all but unary")
    given = parser.parse_args()
    unknown = set(given.parts) - set(known)
    if unknown:
        parser.error(f"expected parts of {', '.join(known)}; got {', '.join(sorted(unknown))}")
    given.rounds = given.rounds or (3 if given.quick else 9)
    given.seconds = given.seconds or (0.3 if given.quick else 2.0)
    return given


def _hold_contests(names: list[str], given: argparse.Namespace) -> list[contest.Result]:
    chosen = [
        one
        for one in CONTESTANTS
        if one.name in names
        and (not given.only or any(word.lower() in one.name.lower() for word in given.only))
    ]
    results: list[contest.Result] = []
    for sessions in given.sessions:
        results += contest.hold(chosen, sessions, given.seconds, given.rounds, given.clients)
    return results


def _machine() -> dict[str, Any]:
    return {
        "Python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "load average before": os.getloadavg(),
    }


if __name__ == "__main__":
    sys.exit(main())
