"""Options and arguments that several commands take, so that they read the same everywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from env_server.cli.exits import Failure, failing_on

if TYPE_CHECKING:
    from env_server.registry import Registry

DEFAULT_ADDRESS = "127.0.0.1:50051"
DEFAULT_LOG_DIR = Path("railgym-log")


class Level(StrEnum):
    """How hard a task is."""

    L1 = "L1"
    L2 = "L2"
    L3 = "L3"


class Access:
    """What a server asks for: a token, and TLS. It shows neither.

    Attributes:
        token: Shown with every call; None: none.
        tls_ca: Who signed the server's certificate; None: in clear.
        tls_cert: The client's own certificate; None: none.
        tls_key: Its key.
    """

    def __init__(
        self,
        token: str | None = None,
        tls_ca: Path | None = None,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
    ) -> None:
        """Takes what was given on the command line or in the environment."""
        self.token = token
        self.tls_ca = tls_ca
        self.tls_cert = tls_cert
        self.tls_key = tls_key


NO_ACCESS = Access()

Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="RAILGYM_TOKEN",
        show_default=False,
        help="Show this token to the server. Others can read a command line: better set the "
        "variable.",
    ),
]

TlsCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        envvar="RAILGYM_TLS_CA",
        show_default=False,
        help="Speak TLS, with a server whose certificate one of these signed (PEM).",
    ),
]

TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        envvar="RAILGYM_TLS_CERT",
        show_default=False,
        help="Your own certificate, for mutual TLS (PEM).",
    ),
]

TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        envvar="RAILGYM_TLS_KEY",
        show_default=False,
        help="Its private key (PEM).",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

RemoteAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        show_default=False,
        help="Ask the server there. Default: what comes with Railgym, without a server.",
    ),
]

ServerAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        show_default=False,
        help="Play on the server there. Default: on one of its own, on a free port.",
    ),
]

MoreEnvs = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="ID|MODULE:CLASS",
        show_default=False,
        help="Add an environment: an id of Gymnasium, or a class of yours. Repeatable.",
    ),
]

MoreTasks = Annotated[
    list[Path] | None,
    typer.Option(
        "--tasks",
        metavar="PATH",
        show_default=False,
        help="Add the tasks of a file or folder to the bundled ones. Repeatable.",
    ),
]

Levels = Annotated[
    list[Level] | None,
    typer.Option("--level", show_default=False, help="Tasks of this level only. Repeatable."),
]

Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag", metavar="TAG", show_default=False, help="Tasks with this tag only. Repeatable."
    ),
]

LogPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A log, one of its files, or a run's folder.")
]


def log_at(path: Path) -> Path:
    """The log that a path stands for: itself, or the `log` folder of a run."""
    return path / "log" if (path / "log").is_dir() else path


def open_registry(
    envs: Sequence[str] | None = None, tasks: Sequence[Path] | None = None
) -> Registry:
    """The bundled environments and tasks, and those that the user adds.

    Raises:
        Failure: One of them cannot be found or read.
    """
    from env_server.errors import RailgymError
    from env_server.registry import Registry
    from env_server.tasks import TaskError, bundled_folder, read_tasks

    with failing_on(TaskError, RailgymError):
        registry = Registry(read_tasks([bundled_folder(), *(tasks or [])]))
        for name in envs or []:
            if ":" in name:
                import_from_here()
            registry.add(name)
    return registry


def import_from_here() -> None:
    """Lets modules of the current folder be imported, after everything that is installed."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def host_and_port(address: str) -> str:
    """Checks an address.

    Raises:
        Failure: It is not HOST:PORT with a port of 0 to 65535.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Failure(f"expected an address HOST:PORT, got {address[:80]!r}")
    return address
