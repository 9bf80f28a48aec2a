"""Who a caller is: operators by the tokens of a file, agents by tokens that the server signs.

**The tokens of operators** stand in a text file, one to a line:

    # tenant  token                             most sessions at once, for each worker
    lab-a     6f1c4e0d9b2a47d38f5e7a10c2b46d9e  200
    lab-b     0b7de1f25a9c4c33a1e2f4d58c6b7a90

A tenant may have several tokens, so that one can be exchanged for another.

**The token of an agent** is its session's id and an HMAC-SHA256 over it, under a key that lies in
the log's directory: it is good on every server of that log, and outlives them.

Nothing here keeps a token: of an operator's there is a digest, an agent's is computed anew. This
module knows neither gRPC nor what a caller may do: see `caller.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

KEY_FILE = "agent-tokens.key"
KEY_BYTES = 32
AGENT_PREFIX = "agent."

_TENANT = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN = re.compile("[A-Za-z0-9._~+/=-]{16,256}")
_QUOTA = re.compile("[1-9][0-9]{0,8}")
_OTHERS = 0o007


class BadTokens(ValueError):
    """A line of tokens cannot be read. The message says which, and holds no token."""


class UnsafeFile(OSError):
    """A file that holds a secret is open to others, or is not what it should be."""


class Operator(NamedTuple):
    """Creates, plays, reads and scores the sessions of a tenant.

    Attributes:
        tenant: Its name; empty: the server knows no tenants, and all sessions are anyone's.
    """

    tenant: str

    def sees(self, tenant: str) -> bool:
        """Whether what belongs to a tenant is there for this operator."""
        return self.tenant in ("", tenant)


class Agent(NamedTuple):
    """Steps, renders and closes one session.

    Attributes:
        session_id: The session.
    """

    session_id: str


Identity: TypeAlias = Operator | Agent

ANYONE = Operator("")


class OperatorTokens:
    """The tokens that operators show. Without any, the server is open.

    Attributes:
        quotas: Most sessions at once, by tenant; who is not named has no limit of its own.
    """

    def __init__(self, tenants: Mapping[bytes, str], quotas: Mapping[str, int]) -> None:
        """Keeps the tenants by the SHA-256 of their tokens; see `parse_tokens`."""
        self._tenants = dict(tenants)
        self.quotas = dict(quotas)

    def __len__(self) -> int:
        """How many tokens there are."""
        return len(self._tenants)

    def tenant_of(self, token: str) -> str | None:
        """Whose token this is; None: nobody's. Takes the same time whichever it is."""
        digest = _digest(token)
        found = None
        for known, tenant in self._tenants.items():
            if hmac.compare_digest(known, digest):
                found = tenant
        return found


NO_TOKENS = OperatorTokens({}, {})


class AgentTokens:
    """Makes and checks the tokens of agents."""

    def __init__(self, key: bytes) -> None:
        """Signs with this key."""
        self._key = key

    def token(self, session_id: str) -> str:
        """The token for a session."""
        signature = hmac.digest(self._key, session_id.encode(), hashlib.sha256)
        return f"{AGENT_PREFIX}{session_id}.{signature.hex()}"

    def session_of(self, token: str) -> str | None:
        """The session that a token is for; None: it was not made here."""
        session_id = token.removeprefix(AGENT_PREFIX).rpartition(".")[0]
        genuine = hmac.compare_digest(self.token(session_id).encode(), token.encode())
        return session_id if genuine else None


def read_tokens(path: Path) -> OperatorTokens:
    """Reads a file of tokens.

    Raises:
        OSError: It cannot be read.
        UnsafeFile: It is open to others than its owner and group.
        BadTokens: A line cannot be read, or there is no token in it.
    """
    _check_private(path)
    return parse_tokens(path.read_text(encoding="utf-8", errors="replace"), str(path))


def parse_tokens(text: str, place: str) -> OperatorTokens:
    """Reads lines of tokens.

    Args:
        text: The lines, see above.
        place: Where they come from, for messages.

    Raises:
        BadTokens: A line cannot be read, or there is no token.
    """
    tenants: dict[bytes, str] = {}
    quotas: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        _check_line(words, f"{place}, line {number}")
        tenant, digest = words[0], _digest(words[1])
        if digest in tenants:
            raise BadTokens(f"{place}, line {number}: the token stands on another line too")
        tenants[digest] = tenant
        for quota in map(int, words[2:]):
            if quotas.setdefault(tenant, quota) != quota:
                raise BadTokens(f"{place}, line {number}: {tenant} has another quota above")
    if not tenants:
        raise BadTokens(f"{place}: expected lines of TENANT TOKEN [MAX_SESSIONS], got none")
    return OperatorTokens(tenants, quotas)


def server_key(directory: Path) -> bytes:
    """The key of all servers of a log; the first one makes it.

    Raises:
        OSError: It cannot be read or made.
        UnsafeFile: It is open to others than its owner and group, or damaged.
    """
    path = directory / KEY_FILE
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        _make_key(path)
    _check_private(path)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise UnsafeFile(f"expected a key of {KEY_BYTES} bytes in {path}, got {len(key)}")
    return key


def _make_key(path: Path) -> None:
    """Puts a key in its place, whole and at once: others may be about to do the same."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink()


def _check_private(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & _OTHERS:
        raise UnsafeFile(
            f"{path} holds secrets and is open to everyone (mode {mode & 0o777:o}): "
            f"chmod 600 {path}"
        )


def _check_line(words: Iterable[str], place: str) -> None:
    tenant, token, quota, *more = *words, *[""] * 3
    if not _TENANT.fullmatch(tenant):
        raise BadTokens(f"{place}: expected a tenant of at most 64 letters, digits and . _ -")
    if not _TOKEN.fullmatch(token):
        raise BadTokens(f"{place}: expected a token of 16 to 256 letters, digits and . _ ~ + / = -")
    if (quota and not _QUOTA.fullmatch(quota)) or any(more):
        raise BadTokens(f"{place}: expected a number of sessions from 1, or nothing, at the end")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
