"""Servers and drivers in processes of their own, and what Linux says of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
START_SECONDS = 60.0
TICKS = os.sysconf("SC_CLK_TCK")


class Broken(Exception):
    """A process did not do what it should. The text says why, in one line."""


class Process:
    """A process that is asked and answers in lines.

    Attributes:
        pid: Of the process.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        """Starts it.

        Raises:
            Broken: There is no such program.
        """
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115  # closed in `end`
        try:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        except FileNotFoundError as e:
            self._errors.close()
            raise Broken(f"not installed: {e.filename}") from None
        self.pid = self._process.pid

    def ask(self, line: str) -> None:
        """Sends a line."""
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Broken(self._last_words()) from None

    def answer(self, seconds: float) -> str:
        """Reads the next line.

        Raises:
            Broken: None comes in time, or the process has ended.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise Broken(f"no answer within {seconds:g} s")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(10)
            raise Broken(self._last_words())
        return line.strip()

    def cpu_seconds(self) -> float:
        """Processor time so far, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_kb(self) -> int:
        """Memory in use."""
        return self._status("VmRSS")

    def threads(self) -> int:
        """How many it has."""
        return self._status("Threads")

    def descriptors(self) -> int:
        """How many files and sockets it holds open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def terminate(self, seconds: float) -> int:
        """Asks it to end, waits for that, and gives its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(seconds)

    def end(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+)", status)[1])

    def _last_words(self) -> str:
        """The last message on stderr, which may have several lines, without the trace before it."""
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines() or ["it ended without a word"]
        begins = [number for number, line in enumerate(lines) if re.match(r"[\w.]+: ", line)]
        return " ".join(" ".join(lines[begins[-1] if begins else -1 :]).split())[:200]


@contextlib.contextmanager
def server(command: Sequence[str | Path]) -> Iterator[tuple[Process, str]]:
    """Runs a server that says its address at the end of its first line.

    Raises:
        Broken: It does not start.
    """
    process = Process(command)
    try:
        yield process, process.answer(START_SECONDS).split()[-1]
    finally:
        process.end()


@contextlib.contextmanager
def railgym(log_dir: str | Path, max_sessions: int = 20_000) -> Iterator[tuple[Process, str]]:
    """Runs Railgym's own server."""
    with server(railgym_command(log_dir, max_sessions)) as running:
        yield running


def railgym_command(log_dir: str | Path, max_sessions: int = 20_000) -> list[str | Path]:
    """The command line of Railgym's own server on a free port."""
    serve = [sys.executable, "-m", "env_server.cli", "serve", "--address", "127.0.0.1:0"]
    limits = ["--max-sessions", str(max_sessions), "--log-level", "warning"]
    return [*serve, *limits, "--log-dir", log_dir]


class Driver(Process):
    """A client process that holds sessions and lets them type: see driving.py."""

    def await_ready(self, seconds: float) -> None:
        """Waits until its sessions are open."""
        line = self.answer(seconds)
        if line != "ready":
            raise Broken(f"expected 'ready', got {line!r}")

    def played(self, seconds: float) -> dict[str, Any]:
        """How the round went that it was asked for."""
        return json.loads(self.answer(seconds))
