"""Streams: texts in pieces, and events as bytes."""

import json
from typing import Any, TypeAlias

Event: TypeAlias = tuple[str, Any]
"""The name of an event, empty for none, and its data."""

PIECE = 7


def pieces(text: str) -> list[str]:
    """A text as a stream brings it: a few characters at a time, at least two pieces of more."""
    size = max(1, min(PIECE, len(text) // 2))
    return [text[start : start + size] for start in range(0, len(text), size)]


def encoded(event: Event) -> bytes:
    """An event as it stands in a stream."""
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()
