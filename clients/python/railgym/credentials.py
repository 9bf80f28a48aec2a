"""What a server may ask for: a token, and TLS from certificate files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

from railgym._grpc import grpc

File: TypeAlias = str | Path

_TOKEN = re.compile("[!-~]+")


class Secret(str):
    """A token that no repr shows, for instance that of an environment's spec."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Shows that there is one."""
        return "'***'"


def bearer(token: str | None) -> tuple[tuple[str, str], ...]:
    """The metadata that shows a token; None: none.

    Raises:
        ValueError: It cannot be one. The message does not show it.
    """
    if token is None:
        return ()
    if not _TOKEN.fullmatch(token):
        raise ValueError("expected a token of ASCII characters without spaces, got another one")
    return (("authorization", f"Bearer {token}"),)


def tls_credentials(
    ca: File | None = None, certificate: File | None = None, key: File | None = None
) -> grpc.ChannelCredentials | None:
    """Reads certificate files, all in PEM; without any: None.

    Args:
        ca: Who signed the server's certificate; None: whom gRPC trusts.
        certificate: The client's own, for mutual TLS.
        key: Its private key.

    Raises:
        OSError: A file cannot be read.
        ValueError: There is a certificate without a key, or a key without a certificate.
    """
    if (certificate is None) != (key is None):
        raise ValueError("expected a certificate and its key, got one of them")
    if ca is None and certificate is None:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=_read(ca), private_key=_read(key), certificate_chain=_read(certificate)
    )


def _read(path: File | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
