"""Who holds a segment of the log: a note beside the log for each one, with the holder's endpoint.

Whether the holder lives is not told here but by the lock on the segment. A note is written before
the first record of its segment, so that there is one for every session of a worker that lives.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FOLDER = "workers"


class Peers:
    """The servers that share a log.

    Attributes:
        directory: Where the log is.
        endpoint: Of this server, "host:port"; empty: it is alone, and writes no notes.
    """

    def __init__(self, directory: Path, endpoint: str = "") -> None:
        """Notes nothing yet."""
        self.directory = directory
        self.endpoint = endpoint

    def announce(self, segment: Path) -> None:
        """Notes that this server holds a segment, in place of who held it before.

        Raises:
            OSError: The note cannot be written.
        """
        if not self.endpoint:
            return
        note = self._note(segment)
        note.parent.mkdir(parents=True, exist_ok=True)
        draft = note.parent / f"{os.getpid()}-{self.endpoint.rpartition(':')[2]}.draft"
        draft.write_text(json.dumps({"endpoint": self.endpoint, "pid": os.getpid()}))
        draft.replace(note)  # at once, so that nobody reads half of it

    def endpoint_of(self, segment: Path) -> str:
        """The endpoint of who holds a segment, or held it last; empty: it is not known."""
        try:
            endpoint = json.loads(self._note(segment).read_bytes())["endpoint"]
        except (OSError, ValueError, KeyError, TypeError):
            return ""
        return str(endpoint)

    def _note(self, segment: Path) -> Path:
        return self.directory / FOLDER / f"{segment.stem}.json"
