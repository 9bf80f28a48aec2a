"""A client for the commands that speak to a server, and a server for those that have none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env_server.cli.exits import Exit, Failure, failing_on
from env_server.cli.guard import TOKENS_VARIABLE
from env_server.cli.options import NO_ACCESS, Access, host_and_port

if TYPE_CHECKING:
    from railgym.client import Client

STOP_SECONDS = 15.0

LEASE_SECONDS = 7 * 86_400.0
"""Of sessions on a server of our own: they end with it, however long a person thinks before."""

SIGTERM_CODE = 128 + signal.SIGTERM


@contextmanager
def connected(
    address: str, access: Access = NO_ACCESS, patience_seconds: float = 30.0
) -> Iterator[Client]:
    """Gives a client; what the server refuses is a failure of the command.

    Args:
        address: Of the server.
        access: What it asks for.
        patience_seconds: How long a call waits for a server that was there and is gone.

    Raises:
        Failure: The server does not answer, or refuses.
    """
    from railgym.client import connect
    from railgym.credentials import bearer, tls_credentials
    from railgym.errors import DeadlineExceeded, RailgymError, Unavailable

    with failing_on(OSError, ValueError):
        credentials = tls_credentials(access.tls_ca, access.tls_cert, access.tls_key)
        bearer(access.token)  # says at once what can be no token
    try:
        with (
            failing_on(RailgymError),
            connect(
                host_and_port(address),
                patience_seconds=patience_seconds,
                credentials=credentials,
                token=access.token,
            ) as client,
        ):
            yield client
    except Failure as e:
        if isinstance(e.__cause__, Unavailable | DeadlineExceeded):
            message = f"expected a server at {address}, got no answer: {e}"
            raise Failure(message, Exit.NO_SERVER) from e
        raise


@contextmanager
def own_server(
    log_dir: Path, messages: Path, envs: Sequence[str], tasks: Sequence[Path]
) -> Iterator[str]:
    """Runs `railgym serve` on a free loopback port while the block runs, and reaps it.

    It holds on to its standard input, and so ends by itself where this process is killed.

    Args:
        log_dir: Where it writes the episode log.
        messages: The file for its own messages, which are added to what is in it.
        envs: Environments to add.
        tasks: Task files to add.

    Yields:
        Its address.

    Raises:
        Failure: It did not come up.
    """
    command = [sys.executable, "-m", "env_server.cli", "serve", "--owned"]
    command += ["--address", "127.0.0.1:0", "--log-dir", str(log_dir)]
    command += ["--lease", str(LEASE_SECONDS)]
    command += [part for name in envs for part in ("--env", name)]
    command += [part for path in tasks for part in ("--tasks", str(path))]
    variables = {name: value for name, value in os.environ.items() if name != TOKENS_VARIABLE}
    with failing_on(OSError):
        stderr = messages.open("ab")
    with (
        stderr,
        ending_on_sigterm(),
        subprocess.Popen(
            command,
            env=variables,  # it is ours alone, whatever tokens other servers may want
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,  # so that Ctrl-C comes to us alone, and we end it in order
        ) as process,
    ):
        try:
            yield _address_of(process, messages)
        finally:
            _stop(process)


def _address_of(process: subprocess.Popen[str], messages: Path) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        last = messages.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-2:]
        raise Failure(f"the server did not start: {' '.join(last)}", Exit.NO_SERVER)
    return line.rpartition(" ")[2]


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Lets SIGTERM unwind the stack as Ctrl-C does, so that no server is left behind."""

    def end(number: int, frame: Any) -> None:
        sys.exit(SIGTERM_CODE)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
