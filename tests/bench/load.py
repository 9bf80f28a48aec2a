"""Puts a server under load for a set time: `make load`.

Thousands of sessions with think time, unary and on streams, in client processes of their own. It
ends in PASS, or in a list of what broke and exit code 1. All on the loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from load_check import Checked, check_log
from processes import HERE, Broken, Process, railgym
from rich.console import Console
from rich.table import Table

MAX_MEMORY_MB = 1_000
MAX_TAIL = 5.0
"""Of the 99th percentile of a step over its median."""

STOP_SECONDS = 30.0
PATIENCE_SECONDS = 120.0
"""Beyond ramp and load, for opening and closing: then it is over."""

NOTHING = {"open": 0, "steps": 0, "errors": 0}
"""What a client says of itself before it has said anything."""


class Watched(NamedTuple):
    """The most that the server took up."""

    memory_mb: float = 0.0
    descriptors: int = 0
    threads: int = 0

    def with_now(self, server: Process) -> Watched:
        """Looks at the server once more."""
        return Watched(
            max(self.memory_mb, server.resident_kb() / 1024),
            max(self.descriptors, server.descriptors()),
            max(self.threads, server.threads()),
        )


class Run(NamedTuple):
    """What a run brought: the clients' reports, the server's size, what its log holds."""

    reports: list[dict]
    watched: Watched
    cpu_share: float
    exit_code: int
    checked: Checked


def main() -> int:
    """Runs the load and judges it."""
    given = _arguments()
    print(f"load average before: {os.getloadavg()}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = _run(given, Path(folder))
        except Broken as e:
            print(f"BROKE: {e}")
            return 1
    broken = _show(run, given)
    print(f"load average after: {os.getloadavg()}", file=sys.stderr)
    for what in broken:
        print(f"BROKE: {what}")
    print("FAIL" if broken else "PASS")
    return 1 if broken else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="under full load")
    parser.add_argument("--ramp", type=float, default=30.0, help="seconds to open them in")
    parser.add_argument(
        "--think", type=float, default=10.0, help="seconds before a step, on average"
    )
    parser.add_argument("--clients", type=int, default=2, help="client processes")
    parser.add_argument("--connections", type=int, default=100, help="of all clients together")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _run(given: argparse.Namespace, folder: Path) -> Run:
    log = folder / "log"
    with (
        railgym(log, given.sessions) as (server, address),
        _clients(given, address, folder) as clients,
    ):
        before, began = server.cpu_seconds(), time.monotonic()
        watched = _watch(clients, server, given)
        cpu_share = (server.cpu_seconds() - before) / (time.monotonic() - began)
        exit_code = server.terminate(STOP_SECONDS)
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("report-*.json"))]
    acknowledged = {k: v for report in reports for k, v in report["acknowledged"].items()}
    print("reading the log ...", file=sys.stderr)
    return Run(reports, watched, cpu_share, exit_code, check_log(log, acknowledged))


@contextlib.contextmanager
def _clients(given: argparse.Namespace, address: str, folder: Path) -> Iterator[list[Process]]:
    with contextlib.ExitStack() as stack:
        clients = []
        for first in range(given.clients):
            plan = {
                "connections": max(1, given.connections // given.clients),
                "sessions": given.sessions,
                "first": first,
                "step": given.clients,
                "ramp": given.ramp,
                "seconds": given.seconds,
                "think": given.think,
                "seed": given.seed,
            }
            report = folder / f"report-{first}.json"
            script = HERE / "load_client.py"
            clients.append(Process([sys.executable, script, address, json.dumps(plan), report]))
            stack.callback(clients[-1].end)
        yield clients


def _watch(clients: Sequence[Process], server: Process, given: argparse.Namespace) -> Watched:
    """Follows the clients' progress until all are done."""
    watched, said = Watched(), {client.pid: NOTHING for client in clients}
    began, running = time.monotonic(), list(clients)
    deadline = began + given.ramp + given.seconds + PATIENCE_SECONDS
    total = NOTHING
    while running:
        for client in list(running):
            line = client.answer(max(1.0, deadline - time.monotonic()))
            if line == "done":
                running.remove(client)
            else:
                said[client.pid] = json.loads(line)
        before, total = total, {key: sum(one[key] for one in said.values()) for key in NOTHING}
        watched = watched.with_now(server)
        _say(time.monotonic() - began, total, total["steps"] - before["steps"], watched)
        if time.monotonic() > deadline:
            raise Broken(f"not over {PATIENCE_SECONDS:g} s after it should have been")
    print(file=sys.stderr)
    return watched


def _say(seconds: float, total: dict[str, int], steps: int, watched: Watched) -> None:
    print(
        f"\r{seconds:4.0f} s: {total['open']:,} opened, {steps:,} steps/s, "
        f"{total['steps']:,} steps, {total['errors']:,} errors, "
        f"server {watched.memory_mb:,.0f} MB, {watched.descriptors} descriptors   ",
        end="",
        file=sys.stderr,
        flush=True,
    )


def _show(run: Run, given: argparse.Namespace) -> list[str]:
    """Prints what happened, and gives what of it should not have."""
    latencies = _latencies(run.reports)
    table = Table(title=f"{given.sessions:,} sessions, {given.think:g} s of thought a step")
    for name in ("steps of", "number", "p50 ms", "p99 ms", "p99 / p50"):
        table.add_column(name, justify="left" if name == "steps of" else "right")
    tails = {}
    for kind, taken in latencies.items():
        cuts = statistics.quantiles(taken, n=100)
        tails[kind] = cuts[98] / cuts[49]
        p50, p99 = f"{cuts[49] / 1e3:,.2f}", f"{cuts[98] / 1e3:,.2f}"
        table.add_row(kind, f"{len(taken):,}", p50, p99, f"{tails[kind]:.1f}")
    Console(width=100).print(table)
    rate = len(latencies.get("all", [])) / given.seconds
    print(f"{rate:,.0f} steps/s; the server used {run.cpu_share:.0%} of a core, ", end="")
    print("{:,.0f} MB, {:,} descriptors, {} threads".format(*run.watched))
    steps = sum(report["steps"] for report in run.reports)
    print(f"log: {run.checked.steps:,} steps; {steps:,} were acknowledged, all kept: ", end="")
    print("no" if run.checked.missing else "yes")
    return _broken(run, given, tails.get("all"), steps)


def _latencies(reports: Sequence[dict]) -> dict[str, list[int]]:
    """Microseconds by kind of step, and of all of them."""
    kinds = sorted({kind for report in reports for kind in report["latencies"]})
    found = {
        kind: [one for report in reports for one in report["latencies"].get(kind, [])]
        for kind in kinds
    }
    enough = {kind: taken for kind, taken in found.items() if len(taken) > 1}
    together = [one for taken in enough.values() for one in taken]
    return {**enough, "all": together} if together else {}


def _broken(run: Run, given: argparse.Namespace, tail: float | None, steps: int) -> list[str]:
    broken = []
    opened = sum(report["opened"] for report in run.reports)
    if opened < given.sessions:
        broken.append(f"{given.sessions - opened:,} of {given.sessions:,} sessions did not open")
    errors = sum((Counter(report["errors"]) for report in run.reports), Counter())
    broken += [f"{count:,} x {reason}" for reason, count in errors.most_common()]
    wrong = [one for report in run.reports for one in report["wrong"]]
    if wrong:
        broken.append(f"{len(wrong):,} replies with another state than their own: {wrong[0]}")
    broken += run.checked.broken()
    if run.checked.steps < steps:
        broken.append(f"{steps:,} steps were acknowledged, the log holds {run.checked.steps:,}")
    if run.exit_code != 0:
        broken.append(f"the server ended with exit code {run.exit_code}")
    if run.watched.memory_mb > MAX_MEMORY_MB:
        broken.append(f"the server took {run.watched.memory_mb:,.0f} MB of {MAX_MEMORY_MB:,}")
    if tail is None:
        broken.append("no step was taken under full load")
    elif tail > MAX_TAIL:
        broken.append(f"p99 of a step is {tail:.1f} times its median, more than {MAX_TAIL:g}")
    return broken


if __name__ == "__main__":
    sys.exit(main())
