"""The real server in a process of its own."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import railgym


def free_port() -> int:
    """A port below those that connections take for themselves, so that it stays free."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """The real server in a process of its own, to be started again and again on one log."""

    def __init__(self, log_dir: Path, *envs: str) -> None:
        self.log_dir = log_dir
        self.address = f"127.0.0.1:{free_port()}"
        self._envs = [word for env in envs for word in ("--env", env)]
        self.process = self._start("exec")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def start_again(self) -> None:
        self.process = self._start("exec")
        self.wait_until_it_serves()

    def start_with(self, limit: str) -> None:
        self.process = self._start(f"{limit}; exec")
        self.wait_until_it_serves()

    def wait_until_it_serves(self) -> None:
        with railgym.connect(self.address, startup_seconds=60) as client:
            while client.health() != "SERVING":
                time.sleep(0.05)

    def _start(self, how: str) -> subprocess.Popen:
        words = [sys.executable, "-m", "env_server.cli", "serve", "--log-level", "error"]
        words += ["--address", self.address, "--log-dir", str(self.log_dir), *self._envs]
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            ["bash", "-c", f'{how} "$@"', "serve", *words],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
        )
