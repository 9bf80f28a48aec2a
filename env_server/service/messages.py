"""The server's own messages: structured, on stderr, as text for people or JSON for programs.

A line that is about a session says so: it carries the `rpc`, the `tenant` and the `session_id` and
`env_id` of the call that was at work (see `subject.py`). Traces show no values of variables, for
those may be a secret, or what an agent must not see.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal, TypeAlias

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from env_server.service.subject import add_session

Format: TypeAlias = Literal["console", "json"]


def configure(form: Format, level: str) -> None:
    """Sets how this process writes its messages, those of libraries included.

    Args:
        form: "console" or "json".
        level: The least important ones that are written, for instance "info".
    """
    first: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_session,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last = _json() if form == "json" else _console()
    structlog.configure(
        processors=[*first, *last],
        wrapper_class=structlog.make_filtering_bound_logger(_number(level)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    libraries = logging.StreamHandler(sys.stderr)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=first,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    libraries.setFormatter(formatter)
    logging.basicConfig(handlers=[libraries], level=max(_number(level), logging.WARNING))


def _json() -> list[structlog.types.Processor]:
    traces = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    return [traces, structlog.processors.JSONRenderer()]


def _console() -> list[structlog.types.Processor]:
    console = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    return [console]


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
