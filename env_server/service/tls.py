"""TLS for the server: its certificate, and which clients may connect. Read anew when files change.

New connections get what the files hold then; those that stand go on. Files that cannot be used
leave the ones before in force, and the server's log says why: a certificate and its key may be
replaced one after the other. This module knows nothing of tokens.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple, TypeAlias

import grpc
import structlog

Stamp: TypeAlias = tuple[tuple[int, int, int], ...]

log = structlog.get_logger()


class BadCertificate(OSError):
    """A certificate or key cannot be used; the message says which, and why."""


class TlsFiles(NamedTuple):
    """The files, all in PEM.

    Attributes:
        certificate: The server's own, followed by those in between.
        key: Its private key, without a password.
        client_ca: Who signs the certificates of clients, which then must have one; None: clients
            need none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Makes credentials that follow the files.

    Raises:
        OSError: A file cannot be read.
        BadCertificate: One holds something else, or the key is of another certificate.
    """
    reloading = _Reloading(files)
    return grpc.dynamic_ssl_server_credentials(
        _read(files),
        reloading.changed,  # type: ignore[arg-type]  # gRPC takes None for "no change"
        require_client_authentication=files.client_ca is not None,
    )


class _Reloading:
    """Looks after the files whenever a client connects."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = _stamp(files)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What the files hold now; None: as before, or nothing that can be used."""
        try:
            stamp = _stamp(self._files)
            if stamp == self._seen:
                return None
            self._seen = stamp  # before they are read, so that a later change is not missed
            found = _read(self._files)
        except OSError as e:
            log.error("certificate_not_reloaded", error=str(e))
            return None
        log.info("certificate_reloaded", file=str(self._files.certificate))
        return found


def _stamp(files: TlsFiles) -> Stamp:
    found = (path.stat() for path in files if path is not None)
    return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in found)


def _read(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    certificate, key = files.certificate.read_bytes(), files.key.read_bytes()
    client_ca = None if files.client_ca is None else files.client_ca.read_bytes()
    _check(files)
    return grpc.ssl_server_certificate_configuration([(key, certificate)], client_ca)


def _check(files: TlsFiles) -> None:
    """Finds out what gRPC would only say when a client connects."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, ValueError) as e:
        raise BadCertificate(
            f"expected a certificate in {files.certificate} and its key, without a password, "
            f"in {files.key}: {_why(e)}"
        ) from None
    try:
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
    except ssl.SSLError as e:
        raise BadCertificate(
            f"expected certificates for --tls-client-ca in {files.client_ca}: {_why(e)}"
        ) from None


def _no_password() -> str:
    raise ValueError("the key has a password")


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error).lower().replace("_", " ")
