"""Exit codes of every command, and the one way in which a command fails.

This module is imported at every start: it imports nothing that takes time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class Exit(IntEnum):
    """What the exit code of a command says."""

    OK = 0
    BAD = 1
    WRONG_INPUT = 2
    NO_SERVER = 3
    BUDGET = 4
    STOPPED = 5
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "done, and nothing is wrong with what was asked about",
    Exit.BAD: "done, and something is: a finding of lint, an episode that is not verified, "
    "a trial that could not be played, a success under --fail-under, a server that does not serve",
    Exit.WRONG_INPUT: "wrong usage or bad input; nothing was done",
    Exit.NO_SERVER: "no server could be reached, or the address cannot be bound",
    Exit.BUDGET: "a run whose budget was used up before every trial was begun",
    Exit.STOPPED: "a run that a model's provider stopped: it knows no such key, or the quota is "
    "used up",
    Exit.INTERRUPTED: "Ctrl-C",
}


class Failure(Exception):
    """Ends a command with one or two plain lines on stderr, and no traceback."""

    def __init__(self, message: str, code: Exit = Exit.WRONG_INPUT) -> None:
        """Keeps the exit code beside the message: what was expected, and what came."""
        super().__init__(message)
        self.code = code


@contextmanager
def failing_on(*kinds: type[Exception], code: Exit = Exit.WRONG_INPUT) -> Iterator[None]:
    """Turns errors whose message is meant for people into the failure of the command."""
    try:
        yield
    except kinds as e:
        raise Failure(_plain(e), code) from e


def _plain(error: Exception) -> str:
    """The message of an error; of one of the system, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
