"""`railgym serve`: hosts environments until it is stopped."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from env_server.cli.exits import Exit, failing_on
from env_server.cli.options import (
    DEFAULT_ADDRESS,
    DEFAULT_LOG_DIR,
    MoreEnvs,
    MoreTasks,
    host_and_port,
    open_registry,
)


class LogFormat(StrEnum):
    """How the server's own messages are written."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """The least important of the server's own messages that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = DEFAULT_ADDRESS,
    log_dir: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Where to write the episode log; sessions go on from there."
        ),
    ] = DEFAULT_LOG_DIR,
    env: MoreEnvs = None,
    tasks: MoreTasks = None,
    max_sessions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Refuse more sessions than this at once.")
    ] = 10_000,
    lease: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=1, help="End a session that is idle for so long."),
    ] = 900.0,
    log_format: Annotated[LogFormat, typer.Option(help="Of the messages on stderr.")] = (
        LogFormat.CONSOLE
    ),
    log_level: Annotated[LogLevel, typer.Option(help="Of the messages on stderr.")] = LogLevel.INFO,
) -> None:
    """Host environments and tasks, and log every episode.

    The bundled environments and tasks are always there. SIGTERM and Ctrl-C drain: running calls
    come to their end, and sessions can be resumed from the log by the next server.

    `railgym serve --env CartPole-v1 --env my_package.my_module:MyEnv --tasks my_tasks/`
    """
    import asyncio

    from env_server.errors import EnvError
    from env_server.service.server import CannotBind, Settings
    from env_server.service.server import serve as serve_until_stopped

    _configure_messages(log_format, log_level)
    settings = Settings(
        log_dir=log_dir,
        address=host_and_port(address),
        capacity=max_sessions,
        lease_seconds=lease,
    )
    registry = open_registry(env, tasks)
    with failing_on(OSError, EnvError), failing_on(CannotBind, code=Exit.NO_SERVER):
        asyncio.run(serve_until_stopped(registry, settings))


def _configure_messages(log_format: LogFormat, log_level: LogLevel) -> None:
    import sys

    import structlog

    if log_format is LogFormat.JSON:
        last: list[structlog.types.Processor] = [
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ]
    else:
        last = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelName(log_level.upper())
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
