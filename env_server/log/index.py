"""Finds the records of one session in a log, to resume it.

Held in memory are the places of records, 8 bytes each, and the ids and tenants of sessions. The
log itself is the truth: an index is made by reading it, and is never stored.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from env_server.log import frames
from env_server.log.frames import BadFrame, Frame, Torn
from env_server.log.reader import Record, record
from env_server.log.segments import segments, sizes
from railgym.v1 import episode_pb2 as pb

_OFFSET_BITS = 40
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class LogIndex:
    """The sessions of a log, by id. For one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """Makes an index that reads the log when it is first asked."""
        self._directory = directory
        self._scanned = False
        self._paths: list[Path] = []  # of the segments, as they were found
        self._read_to: dict[Path, int] = {}
        self._places: dict[str, array[int]] = {}  # segment and offset of a session's records
        self._requests: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._tenants: dict[str, str] = {}

    def session(self, session_id: str) -> list[Record] | None:
        """Reads the records of a session in the order of the log; None: it has none.

        Records that cannot be read are left out, and leave a gap in the chain.
        """
        self._scan_once()
        places = self._places.get(session_id)
        return None if places is None else self._records(places)

    def sessions_of(self, request_id: str, tenant: str = "") -> list[str]:
        """The ids of the sessions that a tenant opened with this `request_id`, oldest first."""
        self._scan_once()
        return list(self._requests.get((tenant, request_id), ()))

    def tenant_of(self, session_id: str) -> str:
        """Whose a session is, as far as the log was read; empty: no tenant's."""
        return self._tenants.get(session_id, "")

    def unread(self) -> list[Path]:
        """The segments that hold what was not read yet."""
        known = sizes(segments(self._directory))
        return [path for path, size in known if size > self._read_to.get(path, 0)]

    def refresh(self) -> None:
        """Reads what any writer has appended since the last time."""
        self._scanned = True
        for path, size in sizes(segments(self._directory)):
            if path not in self._read_to:
                self._paths.append(path)
                self._read_to[path] = 0
            if size > self._read_to[path]:
                self._scan(path, size)

    def _scan_once(self) -> None:
        if not self._scanned:
            self.refresh()

    def _scan(self, path: Path, size: int) -> None:
        segment = self._paths.index(path) << _OFFSET_BITS
        for item in frames.scan(path, self._read_to[path], size):
            if isinstance(item, Torn):
                size = item.offset  # the rest may yet be written
            elif isinstance(item, Frame):
                found = record(item, path)
                if isinstance(found, Record):
                    self._add(found.event, segment | item.offset)
        self._read_to[path] = size

    def _add(self, event: pb.EpisodeEvent, place: int) -> None:
        self._places.setdefault(event.session_id, array("Q")).append(place)
        if event.HasField("session_opened"):
            tenant, request_id = event.session_opened.tenant, event.session_opened.request_id
            if tenant:
                self._tenants[event.session_id] = sys.intern(tenant)
            if request_id:
                self._requests[tenant, request_id].append(event.session_id)

    def _records(self, places: Iterable[int]) -> list[Record]:
        records: list[Record] = []
        for number, part in itertools.groupby(places, lambda place: place >> _OFFSET_BITS):
            path = self._paths[number]
            with path.open("rb") as file:
                for offset in (place & _OFFSET_MASK for place in part):
                    try:
                        payload = frames.read_at(file, offset)
                    except BadFrame:
                        continue  # damaged since it was indexed
                    found = record(Frame(offset, payload), path)
                    if isinstance(found, Record):
                        records.append(found)
        return records
