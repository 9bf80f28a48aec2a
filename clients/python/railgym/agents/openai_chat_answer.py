"""Reads an answer of Chat Completions, whole or streamed, as servers of all kinds write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from railgym.agents.model import CutOff, Stop, Usage
from railgym.agents.openai_sdk import argument_text, usage_of

STOPS: Mapping[str, Stop] = {
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "truncated",
    "content_filter": "refusal",
}

THOUGHTS = ("reasoning_content", "reasoning")
"""Where servers put what a model thinks. It is sent back under the same name beside calls."""


class Call:
    """A call as it comes in.

    Attributes:
        id: None or empty where the server gave none.
        name: Of the tool.
        arguments: The text as far as it has come.
    """

    def __init__(self, call_id: str | None, name: str | None) -> None:
        """Begins without arguments."""
        self.id = call_id
        self.name = name or ""
        self.arguments = ""


class ChatAnswer:
    """An answer, from one piece or from many.

    Attributes:
        calls: In the order in which they began.
        text: Words, without thoughts.
        refusal: Words of a refusal.
        thoughts: By the name under which the server gave them.
        finish_reason: In the server's word; None where it gave none.
        usage: The latest that was said of it.
        id: Of the answer.
        model: That answered.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        self.calls: list[Call] = []
        self.text = ""
        self.refusal = ""
        self.thoughts: dict[str, str] = {}
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.id = ""
        self.model = ""
        self._by_index: dict[int, Call] = {}

    @property
    def stop(self) -> Stop:
        """Why the answer ended."""
        if self.refusal:
            return "refusal"
        return STOPS.get(self.finish_reason or "", "calls" if self.calls else "end")

    def of(self, completion: Any) -> ChatAnswer:
        """Reads an answer of one piece."""
        self._note(completion)
        for choice in (completion.choices or [])[:1]:
            self.finish_reason = choice.finish_reason
            if choice.message is None:
                continue
            self._add_texts(choice.message)
            for call in choice.message.tool_calls or []:
                self._begin_call(call).arguments = _text_of(call)
        return self

    def of_chunks(self, chunks: Iterable[Any]) -> ChatAnswer:
        """Reads an answer of many pieces.

        Raises:
            CutOff: The last of them is missing.
        """
        begun = chosen = False
        for chunk in chunks:
            begun = True
            self._note(chunk)
            for choice in (chunk.choices or [])[:1]:
                chosen = True
                self.finish_reason = choice.finish_reason or self.finish_reason
                self._add_delta(choice.delta)
        if self.finish_reason is None and (chosen or not begun):
            raise CutOff("the stream ended before the answer did", self.usage)
        return self

    def _note(self, piece: Any) -> None:
        self.id = piece.id or self.id
        self.model = piece.model or self.model
        # A server that counts in every chunk counts up, so the latest is the whole.
        self.usage = usage_of(piece.usage, "prompt_tokens", "completion_tokens") or self.usage

    def _add_delta(self, delta: Any) -> None:
        if delta is None:
            return
        self._add_texts(delta)
        for piece in delta.tool_calls or []:
            call = self._by_index.get(piece.index)
            if call is None or _begins_another(piece, call):
                call = self._by_index[piece.index] = self._begin_call(piece)
            call.arguments += _text_of(piece)

    def _add_texts(self, piece: Any) -> None:
        self.text += _words(piece.content)
        self.refusal += piece.refusal or ""
        for name in THOUGHTS:
            if thought := getattr(piece, name, None):
                self.thoughts[name] = self.thoughts.get(name, "") + thought

    def _begin_call(self, piece: Any) -> Call:
        function = getattr(piece, "function", None)
        self.calls.append(Call(piece.id, getattr(function, "name", None)))
        return self.calls[-1]


def _begins_another(piece: Any, call: Call) -> bool:
    """Whether a piece begins a new call though its index is known, or is missing."""
    if piece.function is None or not piece.function.name:
        return False
    return bool(piece.id != call.id if piece.id else piece.index is None)


def _text_of(piece: Any) -> str:
    return argument_text(getattr(getattr(piece, "function", None), "arguments", None))


def _words(content: Any) -> str:
    """The text of a message's content, which some servers give in parts, thoughts among them."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return content or ""
