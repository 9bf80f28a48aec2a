"""`railgym serve`: hosts environments until it is stopped."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from env_server.cli.exits import Exit, Failure, failing_on
from env_server.cli.guard import (
    Insecure,
    TlsCertificate,
    TlsClientCa,
    TlsKey,
    TokenFile,
    check_exposed,
    check_metrics_exposed,
    forget_tokens,
    operator_tokens,
    tls_files,
)
from env_server.cli.limits import (
    EnvMemory,
    MaxCalls,
    MaxMessage,
    MinFreeDisk,
    StepSeconds,
    limits,
)
from env_server.cli.options import (
    DEFAULT_ADDRESS,
    DEFAULT_LOG_DIR,
    MoreEnvs,
    MoreTasks,
    host_and_port,
    open_registry,
)
from env_server.cli.workers import serve_with_workers


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
    step_seconds: StepSeconds = 60.0,
    env_memory: EnvMemory = 4096,
    max_message: MaxMessage = 16,
    max_calls: MaxCalls = 20_000,
    min_free_disk: MinFreeDisk = 256,
    workers: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=64,
            help="Serve with N processes. They share the address and the log; each also listens "
            "on one of the ports after it, where its sessions are. --max-sessions is for each.",
        ),
    ] = 1,
    advertise: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            show_default=False,
            help="Tell clients to reach the worker that holds their session by this host. "
            "Default: the host of --address.",
        ),
    ] = "",
    grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="At the end, let running calls go on for so long."
        ),
    ] = 10.0,
    front: Annotated[str, typer.Option(hidden=True, help="Of a worker: what all share.")] = "",
    owned: Annotated[
        bool, typer.Option("--owned", hidden=True, help="Stop when standard input ends.")
    ] = False,
    metrics_address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            show_default=False,
            help="Show metrics there for Prometheus, at /metrics. Default: nowhere.",
        ),
    ] = "",
    otel: Annotated[
        bool,
        typer.Option(
            "--otel",
            help="Send an OpenTelemetry span of each call to where OTEL_EXPORTER_OTLP_ENDPOINT "
            "says. Needs the extra railgym[otel].",
        ),
    ] = False,
    channelz: Annotated[
        bool,
        typer.Option("--channelz", help="Serve gRPC's channelz: its connections and calls."),
    ] = False,
    tokens: TokenFile = None,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Insecure = False,
    log_format: Annotated[LogFormat, typer.Option(help="Of the messages on stderr.")] = (
        LogFormat.CONSOLE
    ),
    log_level: Annotated[LogLevel, typer.Option(help="Of the messages on stderr.")] = LogLevel.INFO,
) -> None:
    """Host environments and tasks, and log every episode.

    The bundled environments and tasks are always there. SIGTERM and Ctrl-C drain: running calls
    come to their end, and sessions can be resumed from the log by the next server, as those of a
    worker that dies are by the others.

    `railgym serve --env CartPole-v1 --env my_package.my_module:MyEnv --tasks my_tasks/`

    `railgym serve --address 0.0.0.0:50051 --tokens tokens --tls-cert cert.pem --tls-key key.pem`
    """
    import asyncio

    from env_server.errors import EnvError
    from env_server.service.messages import configure
    from env_server.service.server import CannotBind, Settings
    from env_server.service.server import serve as serve_until_stopped

    configure(log_format.value, log_level.value)
    if otel:
        _check_extra()
    settings = Settings(
        log_dir=log_dir,
        address=host_and_port(address),
        capacity=max_sessions,
        lease_seconds=lease,
        grace_seconds=grace,
        limits=limits(step_seconds, env_memory, max_message, max_calls, min_free_disk),
        advertise=advertise,
        front=front and host_and_port(front),
        tokens=operator_tokens(tokens),
        tls=tls_files(tls_cert, tls_key, tls_client_ca),
        metrics_address=metrics_address and host_and_port(metrics_address),
        tracing=otel,
        channelz=channelz,
        owned=owned,
    )
    for reachable in filter(None, (settings.address, settings.front)):
        check_exposed(reachable, settings.tokens, insecure=insecure)
    check_metrics_exposed(settings.metrics_address, insecure=insecure)
    if workers > 1:
        serve_with_workers(settings, workers)
    forget_tokens()
    registry = open_registry(env, tasks)
    with failing_on(OSError, EnvError), failing_on(CannotBind, code=Exit.NO_SERVER):
        asyncio.run(serve_until_stopped(registry, settings))


def _check_extra() -> None:
    """Makes sure that what `--otel` needs is installed.

    Raises:
        Failure: It is not.
    """
    try:
        import env_server.service.traces  # noqa: F401
    except ModuleNotFoundError as e:
        raise Failure(f"--otel needs more: pip install 'railgym[otel]' ({e})") from None
