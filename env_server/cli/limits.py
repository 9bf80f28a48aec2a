"""The options of `railgym serve` that say what clients and environments are held to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from env_server.service.limits import Limits

MEBIBYTE = 1024**2

StepSeconds: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Stop an environment of --env that takes longer for a reset, a step or a render. "
        "0: never.",
    ),
]
EnvMemory: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="MIB",
        min=0,
        help="Give the process of an environment of --env no more memory. 0: as it likes.",
    ),
]
MaxMessage: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="MIB",
        min=1,
        max=1024,
        help="Refuse larger messages, and send none. Clients take 16 if not told otherwise.",
    ),
]
MaxCalls: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=2,
        help="Refuse more calls and streams than this at once, health checks included. One "
        "connection gets at most half of them.",
    ),
]
MinFreeDisk: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="MIB",
        min=0,
        help="Refuse new sessions and steps while the disk of the log has less free.",
    ),
]


def limits(
    step_seconds: float, env_memory: int, max_message: int, max_calls: int, min_free_disk: int
) -> Limits:
    """The limits of a server, from its options."""
    from env_server.service.limits import Limits

    return Limits(
        step_seconds=step_seconds,
        env_bytes=env_memory * MEBIBYTE,
        message_bytes=max_message * MEBIBYTE,
        calls=max_calls,
        free_log_bytes=min_free_disk * MEBIBYTE,
    )
