"""Anthropic Messages, from the provider's side."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from providers.asked import Asked, demand, demand_name
from providers.pieces import Event, pieces
from providers.replies import Fault, Say

PATH = "/v1/messages"
STOPS = {"calls": "tool_use", "end": "end_turn", "truncated": "max_tokens", "refusal": "refusal"}
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
OVERLOADED = Fault(529, message="Overloaded")


def read(body: dict[str, Any]) -> Asked:
    """Reads a request."""
    asked = Asked("messages", body)
    demand("max_tokens" in body, "max_tokens: Field required")
    demand(body.get("messages"), "messages: at least one message is required")
    asked.system = "".join(block["text"] for block in _blocks(body.get("system", "")))
    open_calls: list[str] = []
    for number, message in enumerate(body["messages"]):
        blocks = _blocks(message["content"])
        demand(blocks, f"messages.{number}: content must be non-empty")
        if message["role"] == "assistant":
            asked.turns += 1
            open_calls = _read_answer(blocks, number)
        else:
            _read_user(asked, blocks, open_calls, number)
            open_calls = []
    demand(not open_calls, "tool_use ids were found without tool_result blocks")
    return asked


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _read_answer(blocks: list[dict[str, Any]], number: int) -> list[str]:
    for block in blocks:
        if block["type"] == "thinking":
            signed = block.get("signature") == _signature(block["thinking"])
            demand(signed, f"messages.{number}: Invalid `signature` in `thinking` block")
        if block["type"] == "text":
            demand(block["text"].strip(), "messages: text content blocks must be non-empty")
        if block["type"] == "tool_use":
            demand_name(block["name"])
            demand(isinstance(block["input"], dict), "tool_use.input: should be a dictionary")
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    demand(len(set(ids)) == len(ids), "tool_use ids must be unique")
    return ids


def _read_user(asked: Asked, blocks: list[dict[str, Any]], calls: list[str], number: int) -> None:
    given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    demand(
        sorted(given) == sorted(calls),
        f"messages.{number}: each `tool_use` must have one `tool_result` in the next message",
    )
    for block in blocks:
        if block["type"] == "tool_result":
            texts = [part["text"] for part in _blocks(block["content"])]
            asked.results.append("".join(texts))
        else:
            demand(block["text"].strip(), "messages: text content blocks must be non-empty")
            asked.hear(block["text"])


def whole(asked: Asked, say: Say, name: str) -> dict[str, Any]:
    """An answer that is not streamed."""
    content = [_block(kind, value) for kind, value in _content(say, name)]
    return _message(asked, say, name, content, STOPS[say.ends], _usage(say))


def stream(asked: Asked, say: Say, name: str) -> Iterator[Event]:
    """The events of an answer."""
    first = {**_usage(say), "output_tokens": min(1, say.count("output"))} if say.usage else None
    yield _event("message_start", message=_message(asked, say, name, [], None, first))
    for index, (kind, value) in enumerate(_content(say, name)):
        yield from _block_events(index, kind, value)
        if index == 0:
            yield _event("ping")
    delta = {"stop_reason": STOPS[say.ends], "stop_sequence": None}
    last = {k: v for k, v in _usage(say).items() if k != "cache_creation"} if say.usage else None
    yield _event("message_delta", delta=delta, usage=last)
    yield _event("message_stop")


def error(fault: Fault, name: str) -> dict[str, Any]:
    """The body of an error."""
    kind = fault.type or TYPES.get(fault.status, "api_error")
    words = {"type": kind, "message": fault.message or f"This is status {fault.status}."}
    return {"type": "error", "error": words, "request_id": f"req_{name}"}


def broken(name: str, number: int) -> Event:
    """The event that breaks off a stream."""
    return "error", error(OVERLOADED, name)


def _event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind, **fields}


def _content(say: Say, name: str) -> Iterator[tuple[str, Any]]:
    if say.thinking:
        yield "thinking", say.thinking
    if say.text or say.refusal:
        yield "text", say.text or say.refusal
    for number, (tool, text) in enumerate(say.calls):
        call_id = say.ids[number] if say.ids else f"toolu_{name}_{number}"
        yield "tool_use", (call_id, tool, text)


def _block(kind: str, value: Any) -> dict[str, Any]:
    if kind == "tool_use":
        call_id, tool, text = value
        given = json.loads(text) if text.strip() else {}
        return {"type": kind, "id": call_id, "name": tool, "input": given}
    if kind == "thinking":
        return {"type": kind, "thinking": value, "signature": _signature(value)}
    return {"type": kind, "text": value, "citations": None}


def _block_events(index: int, kind: str, value: Any) -> Iterator[Event]:
    if kind == "tool_use":
        call_id, tool, text = value
        empty = {"type": kind, "id": call_id, "name": tool, "input": {}}
        deltas = [("input_json_delta", "partial_json", part) for part in ["", *pieces(text)]]
    elif kind == "thinking":
        empty = {"type": kind, "thinking": "", "signature": ""}
        deltas = [("thinking_delta", "thinking", part) for part in pieces(value)]
        deltas.append(("signature_delta", "signature", _signature(value)))
    else:
        empty = {"type": kind, "text": ""}
        deltas = [("text_delta", "text", part) for part in pieces(value)]
    yield _event("content_block_start", index=index, content_block=empty)
    for type_, key, part in deltas:
        yield _event("content_block_delta", index=index, delta={"type": type_, key: part})
    yield _event("content_block_stop", index=index)


def _message(
    asked: Asked, say: Say, name: str, content: list[Any], stop: str | None, usage: Any
) -> dict[str, Any]:
    return {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "model": say.model or asked.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(say: Say) -> dict[str, Any]:
    short, long = say.count("cache_write_5m"), say.count("cache_write_1h")
    return {
        "input_tokens": say.count("input"),
        "cache_creation_input_tokens": short + long,
        "cache_read_input_tokens": say.count("cache_read"),
        "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long},
        "output_tokens": say.count("output"),
        "output_tokens_details": {"thinking_tokens": say.count("reasoning")},
    }


def _signature(thinking: str) -> str:
    return hashlib.sha256(thinking.encode()).hexdigest()
