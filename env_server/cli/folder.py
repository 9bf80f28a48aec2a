"""The folder of a run: what was asked for, what was played and what came of it.

`config.json` says what was asked for last, `log/` is the episode log of all that was ever played
here, `failures.jsonl` has a line for each trial that could not be played, `scores.json`,
`episodes.jsonl` and `report.html` come from replaying the log, and `server.log` holds the server's
own messages. Whatever kills the process, each file is whole: as it was, or as it is to be.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from env_server.cli.asked import CONFIG
from env_server.cli.config import check_name
from env_server.cli.exits import Failure, failing_on
from env_server.scoring.unplayed import FAILURES

LOG = "log"
SERVER_LOG = "server.log"
EPISODES = "episodes.jsonl"

_LOCK = ".lock"
_NEW = ".new"


class Folder:
    """The folder of one run.

    Attributes:
        path: Where it is.
        run: Label "run" of the run's sessions; tells two runs on one server apart, whatever
            their names.
    """

    def __init__(self, out: Path, name: str) -> None:
        """Looks at a folder, which need not be there, and changes nothing.

        Args:
            out: Where it is.
            name: Its name.

        Raises:
            Failure: There is something else in its place.
        """
        check_name(name)
        self.path = out / name
        with failing_on(OSError):
            self.run = _run_of(self.path) or _new_run(name)

    @property
    def log(self) -> Path:
        """The episode log."""
        return self.path / LOG

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Makes the folder where it is missing, and keeps other runs out of it.

        Raises:
            Failure: It cannot be made, or another run is at work in it.
        """
        with failing_on(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise Failure(f"another run is at work in {self.path}: choose another --name") from None
        try:
            self.run = _run_of(self.path) or self.run  # another run may have made it meanwhile
            yield
        finally:
            os.close(lock)

    def empty(self) -> None:
        """Deletes what earlier runs left, to begin anew.

        Raises:
            Failure: Something cannot be deleted.
        """
        with failing_on(OSError):
            for path in self.path.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name not in (_LOCK, CONFIG):  # by these it is known for what it is
                    path.unlink()
        self.run = _new_run(self.path.name)

    def write(self, name: str, write: Callable[[Path], None]) -> Path:
        """Writes a file, which is there as a whole or not at all.

        Args:
            name: Of the file.
            write: Is given the path to write to.

        Returns:
            Where it is.

        Raises:
            Failure: It cannot be written.
        """
        target = self.path / name
        new = target.with_name(name + _NEW)
        with failing_on(OSError):
            write(new)
            new.replace(target)
        return target

    def write_config(self, content: Mapping[str, Any]) -> None:
        """Writes config.json, with the run's label.

        Raises:
            Failure: It cannot be written.
        """
        text = json.dumps({"name": self.path.name, "run": self.run, **content}, indent=1)
        self.write(CONFIG, lambda path: _write_text(path, text + "\n"))

    def clear_failures(self) -> None:
        """Begins an empty failures.jsonl.

        Raises:
            Failure: It cannot be written.
        """
        self.write(FAILURES, lambda path: _write_text(path, ""))

    def add_failure(self, failure: Mapping[str, Any]) -> None:
        """Adds a line to failures.jsonl.

        Raises:
            Failure: It cannot be written.
        """
        with failing_on(OSError), (self.path / FAILURES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(failure) + "\n")


def _new_run(name: str) -> str:
    """A label that no other run has."""
    return f"{name}.{secrets.token_hex(4)}"


def _run_of(path: Path) -> str | None:
    """The label of the run in a folder; None: there is none yet.

    Raises:
        Failure: It holds something else.
    """
    config = path / CONFIG
    if not config.is_file():
        if path.is_dir() and all(p.name in (_LOCK, CONFIG + _NEW) for p in path.iterdir()):
            return None
        if path.exists():
            raise Failure(f"{path} is not the folder of a run (no {CONFIG} in it): left as it is")
        return None
    try:
        return str(json.loads(config.read_text(encoding="utf-8"))["run"])
    except (ValueError, KeyError, TypeError) as e:
        raise Failure(f"expected the {CONFIG} of a run at {config}, got {e!r}") from e


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
