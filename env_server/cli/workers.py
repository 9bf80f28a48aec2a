"""`railgym serve --workers N`: the command line of each worker, and who runs them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import typer

from env_server.cli.exits import Exit, Failure, failing_on

if TYPE_CHECKING:
    from env_server.service.server import Settings

ANY_HOST = ("0.0.0.0", "[::]")


def serve_with_workers(settings: Settings, workers: int) -> NoReturn:
    """Runs this very command in several processes until it is told to stop.

    Raises:
        Failure: An address cannot be bound, or clients could not be told where a worker is.
        typer.Exit: With the code of the first worker that did not end in order, or 0.
    """
    import asyncio

    from env_server.service.workers import CannotReserve, Plan, supervise

    host = settings.address.rpartition(":")[0]
    if host in ANY_HOST and not settings.advertise:
        raise Failure(
            f"with --workers, expected --advertise HOST beside --address {settings.address}: "
            "clients must be told by which host they reach the worker that holds their session"
        )
    command = [sys.executable, "-m", "env_server.cli", *sys.argv[1:]]
    commands = [
        [*command, *_metrics_options(settings.metrics_address, number)] for number in range(workers)
    ]
    with failing_on(CannotReserve, code=Exit.NO_SERVER):
        code = asyncio.run(supervise(Plan(commands, settings.address, settings.grace_seconds)))
    raise typer.Exit(code)


def _metrics_options(address: str, number: int) -> list[str]:
    """Where a worker shows its metrics: the first at the address, the others on the next ports."""
    if not address:
        return []
    host, _, port = address.rpartition(":")
    return ["--metrics-address", f"{host}:{int(port) + number if int(port) else 0}"]
