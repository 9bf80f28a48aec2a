"""Certificates for tests, made by `openssl`."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no test of TLS ran: the program openssl is missing")
        self._folder = folder / name
        self._folder.mkdir(parents=True)
        self._count = 0
        self.certificate, self._key = self._folder / "ca.pem", self._folder / "ca.key"
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        self._new_key = new_key
        subject = ["-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate]
        openssl("req", "-x509", *new_key, *subject, "-days", "2")

    def sign(self) -> Pair:
        """A new certificate for localhost, of a server or a client."""
        self._count += 1
        certificate = self._folder / f"{self._count}.pem"
        key, request = certificate.with_suffix(".key"), certificate.with_suffix(".csr")
        subject = ["-subj", f"/CN={self._count}", "-addext", NAMES]
        openssl("req", *self._new_key, *subject, "-keyout", key, "-out", request)
        signed_by = ["-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"]
        copied = ["-copy_extensions", "copy", "-days", "1"]
        openssl("x509", "-req", "-in", request, *signed_by, *copied, "-out", certificate)
        return Pair(certificate, key)


def openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
