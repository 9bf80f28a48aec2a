"""Rows for fine-tuning: one JSON line for each episode, with its messages and its tools.

This is what trainers and hosted fine-tuning take: `messages` and `tools` as in Chat Completions,
and nothing else. Text is as it was, so that a row teaches what was really done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TextIO

from env_server.export.conversation import is_conversation, messages, tools
from env_server.export.selection import Scored
from env_server.scoring.trace import Trace


def row(trace: Trace) -> dict[str, Any]:
    """The row of one episode, which must be a conversation."""
    return {"messages": messages(trace), "tools": tools(trace)}


def write_rows(episodes: Iterable[Scored], out: TextIO) -> int:
    """Writes a line for each episode that is a conversation; returns how many."""
    lines = 0
    for episode in episodes:
        if is_conversation(episode.trace):
            out.write(json.dumps(row(episode.trace), separators=(",", ":")) + "\n")
            lines += 1
    return lines
