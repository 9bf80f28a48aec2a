"""Rows for fine-tuning: one JSON line for each episode, with its messages and its tools.

`messages` and `tools` are those of Chat Completions, which trainers and hosted fine-tuning take.
`episode_id`, `task_id` and `agent` say whose row it is, to pick rows by; where a service refuses
them, `jq -c '{messages, tools}'` leaves them out. Text is as it was, so that a row teaches what was
really done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TextIO

from env_server.export.conversation import is_conversation, messages, tools
from env_server.export.selection import Scored


def row(episode: Scored) -> dict[str, Any]:
    """The row of one episode, which must be a conversation."""
    score, trace = episode
    return {
        "episode_id": trace.episode_id,
        "task_id": trace.task_id or None,
        "agent": score.agent or None,
        "messages": messages(trace),
        "tools": tools(trace),
    }


def write_rows(episodes: Iterable[Scored], out: TextIO) -> int:
    """Writes a line for each episode that is a conversation; returns how many."""
    lines = 0
    for episode in episodes:
        if is_conversation(episode.trace):
            out.write(json.dumps(row(episode), separators=(",", ":")) + "\n")
            lines += 1
    return lines
