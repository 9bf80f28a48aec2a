"""How `railgym serve` is guarded: tokens, TLS, and addresses that others can reach."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from env_server.cli.exits import Failure, failing_on

if TYPE_CHECKING:
    from env_server.service.identity import OperatorTokens
    from env_server.service.tls import TlsFiles

TOKENS_VARIABLE = "RAILGYM_TOKENS"

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        metavar="FILE",
        show_default=False,
        help="Serve only who shows a token of this file: lines of TENANT TOKEN [MAX_SESSIONS]. "
        f"The variable {TOKENS_VARIABLE} may hold the lines instead. Default: no token is needed.",
    ),
]

TlsCertificate = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        show_default=False,
        help="Serve TLS with this certificate (PEM, the chain after it). A new file is taken up "
        "without a restart. Default: in clear.",
    ),
]

TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key", metavar="FILE", show_default=False, help="The certificate's private key (PEM)."
    ),
]

TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-client-ca",
        metavar="FILE",
        show_default=False,
        help="Mutual TLS: serve only clients whose certificate one of these signed (PEM).",
    ),
]

Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Serve whoever can reach an address that is not loopback, without tokens.",
    ),
]


def operator_tokens(path: Path | None) -> OperatorTokens:
    """The tokens of a file, or else of the environment.

    Raises:
        Failure: They cannot be read, or stand in both places.
    """
    from env_server.service.identity import NO_TOKENS, BadTokens, parse_tokens, read_tokens

    text = os.environ.get(TOKENS_VARIABLE)
    if path is not None and text is not None:
        raise Failure(f"expected tokens from --tokens or from {TOKENS_VARIABLE}, got both")
    with failing_on(OSError, BadTokens):
        if path is not None:
            return read_tokens(path)
        return NO_TOKENS if text is None else parse_tokens(text, TOKENS_VARIABLE)


def forget_tokens() -> None:
    """Takes the tokens out of the process's environment, before foreign code can look there."""
    os.environ.pop(TOKENS_VARIABLE, None)


def tls_files(
    certificate: Path | None, key: Path | None, client_ca: Path | None
) -> TlsFiles | None:
    """The files of TLS; None: in clear.

    Raises:
        Failure: One is missing that another one needs.
    """
    from env_server.service.tls import TlsFiles

    if certificate is not None and key is not None:
        return TlsFiles(certificate, key, client_ca)
    if certificate is not None or key is not None or client_ca is not None:
        raise Failure("TLS needs --tls-cert and --tls-key, both of them")
    return None


def check_exposed(address: str, tokens: OperatorTokens, *, insecure: bool) -> None:
    """Makes sure that nobody is served by mistake.

    Raises:
        Failure: Others can reach the address, there are no tokens, and nobody said that this is
            meant.
    """
    if not (tokens or insecure or is_loopback(address)):
        raise Failure(
            f"{address} can be reached from outside this machine, where everyone could play, read "
            f"and score: give --tokens FILE (or {TOKENS_VARIABLE}), or --insecure if that is meant"
        )


def check_metrics_exposed(address: str, *, insecure: bool) -> None:
    """Makes sure that nobody reads metrics by mistake, for which there are no tokens.

    Raises:
        Failure: Others can reach the address, and nobody said that this is meant.
    """
    if not (not address or insecure or is_loopback(address)):
        raise Failure(
            f"metrics on {address} can be read from outside this machine by everyone: give "
            "--insecure if that is meant; with --tokens, calls need one all the same"
        )


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach HOST:PORT."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
