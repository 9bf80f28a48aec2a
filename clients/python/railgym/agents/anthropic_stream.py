"""The stream of one answer of Anthropic Messages, put together event by event.

It keeps what came: where the stream breaks, the usage that was said until then can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railgym.agents.model import Usage

_PIECES = {
    "text_delta": ("text", "text"),
    "input_json_delta": ("partial_json", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}
"""Which field of a delta belongs to which of its block."""


class Reading:
    """An answer as far as it has come.

    Attributes:
        begun: Anything has come.
        over: It came to its end.
        id: Of the message.
        model: That answers.
        stop_reason: Why it ended; empty: it has not, or without a word.
    """

    def __init__(self) -> None:
        """Has nothing yet."""
        self.begun = False
        self.over = False
        self.id = ""
        self.model = ""
        self.stop_reason = ""
        self._blocks: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Takes the next event; kinds that it does not know change nothing.

        Raises:
            KeyError: The event lacks what events of its kind have.
        """
        self.begun = True
        match event["type"]:
            case "message_start":
                message = event["message"]
                self.id, self.model = message.get("id") or "", message.get("model") or ""
                self._count(message.get("usage"))
            case "content_block_start":
                self._blocks[event["index"]] = _opened(event["content_block"])
            case "content_block_delta":
                self._extend(self._blocks[event["index"]], event["delta"])
            case "message_delta":
                self.stop_reason = event["delta"].get("stop_reason") or self.stop_reason
                self._count(event.get("usage"))
            case "message_stop":
                self.over = True

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The blocks in their order, as they go back; of a call, `text` holds the arguments."""
        return [_whole(self._blocks[index]) for index in sorted(self._blocks)]

    @property
    def usage(self) -> Usage | None:
        """What was said of tokens so far; None: nothing."""
        if not self._usage:
            return None
        count = self._usage.get
        kept = count("cache_creation") or {}
        long = kept.get("ephemeral_1h_input_tokens") or 0
        written = count("cache_creation_input_tokens")
        if written is None:
            written = long + (kept.get("ephemeral_5m_input_tokens") or 0)
        return Usage(
            input=count("input_tokens") or 0,
            cache_read=count("cache_read_input_tokens") or 0,
            cache_write_5m=written - long,
            cache_write_1h=long,
            output=count("output_tokens") or 0,
            reasoning=(count("output_tokens_details") or {}).get("thinking_tokens") or 0,
        )

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Takes counts in. Each says how much there was in all, so that the last one counts."""
        told = usage or {}
        self._usage.update({key: value for key, value in told.items() if value is not None})

    def _extend(self, block: dict[str, Any], delta: Mapping[str, Any]) -> None:
        if delta["type"] in _PIECES:
            source, target = _PIECES[delta["type"]]
            block[target] = block.get(target, "") + delta[source]


def _opened(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block that has begun, without what only answers have."""
    kind = block["type"]
    if kind == "tool_use":
        told = {"id": block.get("id"), "name": block.get("name") or ""}
        return {"type": kind, **told, "text": ""}
    if kind == "text":
        return {"type": kind, "text": block.get("text") or ""}
    return dict(block)


def _whole(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block with characters mended that were cut in two by the stream."""
    return {
        key: value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        if isinstance(value, str)
        else value
        for key, value in block.items()
    }
