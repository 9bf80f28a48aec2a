"""The real server in a process of its own."""

import os
import socket
import subprocess
import sys
from pathlib import Path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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

    def start_with(self, limit: str) -> None:
        self.process = self._start(f"{limit}; exec")

    def _start(self, how: str) -> subprocess.Popen:
        words = [sys.executable, "-m", "env_server.cli", "serve", "--log-level", "error"]
        words += ["--address", self.address, "--log-dir", str(self.log_dir), *self._envs]
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            ["bash", "-c", f'{how} "$@"', "serve", *words],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
        )
