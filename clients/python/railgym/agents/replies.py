"""What came in place of an answer, and from where, in words for people. It knows no API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from railgym.agents.model import CutOff

SHOWN = 200
"""Characters of a page that nobody asked for."""

EVENTS = "text/event-stream"


def place(asked: Any) -> str:
    """Where a request went, without any secret that its URL may hold.

    Args:
        asked: An SDK's error or reply.
    """
    url = urlsplit(str(asked.request.url))
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def events_of(stream: Any) -> Iterator[Any]:
    """The events of an SDK's stream.

    A reply of another type is read as a whole before: there may be events in it all the same.

    Raises:
        CutOff: There are none.
    """
    reply = stream.response
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != EVENTS:
        reply.read()
    came = False
    for event in stream:
        came = True
        yield event
    if not came and kind != EVENTS:
        got = f"got {kind or 'something without a type'}: {_shortened(reply.text)}"
        raise CutOff(f"expected an event stream from {place(reply)}, {got}", type="no_event_stream")


def refused(error: Any, message: str) -> str:
    """The message of an error with a status.

    Its URL is added where that may be what is wrong, and the page that came where that was no JSON.
    """
    page = error.body if isinstance(error.body, str) else ""
    if page and page in message:
        message = f"status {error.status_code}"
    if page or error.status_code == 404:
        message = f"{message} at {place(error)}"
    return f"{message}: {_shortened(page)}" if page else message


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else line[:SHOWN] + "..."
