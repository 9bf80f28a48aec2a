"""What a client can do wrong. An agent's mistakes are observations, not errors.

    RailgymError
    ├── UnknownEnv            NOT_FOUND
    ├── UnknownTask           NOT_FOUND
    ├── UnknownSession        NOT_FOUND
    ├── UnknownEpisode        NOT_FOUND
    ├── SessionClosed         FAILED_PRECONDITION
    ├── SessionExpired        FAILED_PRECONDITION
    ├── NotReset              FAILED_PRECONDITION
    ├── StepOutOfOrder        FAILED_PRECONDITION
    ├── EpisodeOutOfOrder     FAILED_PRECONDITION
    ├── EpisodeOver           FAILED_PRECONDITION
    ├── NotResumable          FAILED_PRECONDITION
    ├── BadAction             INVALID_ARGUMENT
    ├── BadOptions            INVALID_ARGUMENT
    ├── BadRequest            INVALID_ARGUMENT
    ├── BadPage               INVALID_ARGUMENT
    ├── TooManySessions       RESOURCE_EXHAUSTED
    ├── LogUnwritable         UNAVAILABLE
    ├── Unauthenticated       UNAUTHENTICATED
    ├── PermissionDenied      PERMISSION_DENIED
    ├── QuotaExceeded         RESOURCE_EXHAUSTED
    ├── WrongEndpoint         FAILED_PRECONDITION
    ├── StepTimedOut          DEADLINE_EXCEEDED
    ├── Draining              UNAVAILABLE
    └── EnvError              INTERNAL

Each class is one ErrorReason of proto/railgym/v1/env_service.proto; the codes stand in
env_server/service/status.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class RailgymError(Exception):
    """Base. `metadata` holds every value that the message mentions."""

    def __init__(self, message: str, **metadata: object) -> None:
        """Keeps the message and the values that it mentions, as text."""
        super().__init__(message)
        self.metadata = {key: str(value) for key, value in metadata.items()}


class UnknownEnv(RailgymError):
    """No environment has this id."""


class UnknownTask(RailgymError):
    """No task has this id."""


class UnknownSession(RailgymError):
    """No session ever had this id."""


class UnknownEpisode(RailgymError):
    """The log holds no such episode."""


class SessionClosed(RailgymError):
    """The session was closed."""


class SessionExpired(RailgymError):
    """The session's lease ran out."""


class NotReset(RailgymError):
    """No episode has begun."""


class StepOutOfOrder(RailgymError):
    """The step is neither the latest nor the one after it, or repeats it with another action."""


class EpisodeOutOfOrder(RailgymError):
    """The episode is neither the latest nor the one after it."""


class EpisodeOver(RailgymError):
    """The latest transition ended the episode."""


class NotResumable(RailgymError):
    """The log of the session cannot be followed to its end."""


class BadAction(RailgymError):
    """The action is not of the kind or shape that the environment takes."""


class BadOptions(RailgymError):
    """An option that the environment does not have, or a value that it does not take."""


class BadRequest(RailgymError):
    """A field of a request is wrong."""


class BadPage(RailgymError):
    """A page token that no list gave."""


class TooManySessions(RailgymError):
    """The server is full."""


class LogUnwritable(RailgymError):
    """The log cannot be written; nothing is lost, and the same call may be sent again."""


class Unauthenticated(RailgymError):
    """No token, or one that the server does not know."""


class PermissionDenied(RailgymError):
    """The token does not allow this call, or not on this session."""


class QuotaExceeded(RailgymError):
    """The tenant holds as many sessions as it may."""


class WrongEndpoint(RailgymError):
    """The session lives on another worker of the server."""


class StepTimedOut(RailgymError):
    """The environment took too long and was stopped, which ended the episode."""


class Draining(RailgymError):
    """The server is stopping and takes no new sessions."""


class EnvError(RailgymError):
    """The environment failed; the trace stands in the server's log."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Names closest to a wrong one, for an error message.

    Args:
        name: What was asked for; only its first 200 characters are looked at.
        known: What there is.

    Returns:
        At most three, closest first; the first three known ones where none is close.
    """
    known = sorted(known)
    close = difflib.get_close_matches(name[:200], known, n=3, cutoff=0.5)
    return close or known[:3]


def nearest_in_folder(name: str, known: Iterable[str]) -> list[str]:
    """As `nearest`, of names like paths: those in the folder of the wrong one, if there are any."""
    folder, slash, _ = name.partition("/")
    known = list(known)
    beside = [other for other in known if slash and other.startswith(f"{folder}/")]
    return nearest(name, beside or known)


def shown(text: str, limit: int = 80) -> str:
    """A text as an error message shows it: quoted, escaped, and cut to `limit` characters."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}… ({len(text):,} characters)"


def cut(text: str, limit: int = 80) -> str:
    """A value that was written out, as an error message shows it: cut to `limit` characters."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def printable(text: str) -> str:
    """Text that may go to a terminal: its control characters are shown as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def bad_action(expected: str, got: Any) -> BadAction:
    """The error for an action that is of no use here: what was expected and what came."""
    text = cut(repr(got))
    return BadAction(f"expected {expected}, got {text}", expected=expected, got=text)
