"""OpenAI Responses, from the provider's side."""

import base64
from collections.abc import Iterator
from itertools import count
from typing import Any

from providers.asked import Asked, demand, demand_name
from providers.openai_words import OVERLOADED, counts, error
from providers.pieces import Event, pieces
from providers.replies import Say

__all__ = ["OVERLOADED", "PATH", "broken", "error", "read", "stream", "whole"]

PATH = "/v1/responses"
REASONS = {"truncated": "max_output_tokens", "refusal": "content_filter"}


def read(body: dict[str, Any]) -> Asked:
    """Reads a request."""
    asked = Asked("responses", body, system=body.get("instructions") or "")
    demand(body.get("input"), "One of input, previous_response_id or prompt must be provided.")
    items = body["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    open_calls: list[str] = []
    answering = False
    for item in items:
        kind = item.get("type", "message")
        ours = kind != "function_call_output" and item.get("role") not in ("user", "developer")
        asked.turns += ours and not answering
        answering = ours
        _read_item(asked, kind, item, open_calls)
    demand(not open_calls, f"No tool output found for function call {open_calls[:1]}.")
    _check_reasoning(items)
    return asked


def _read_item(asked: Asked, kind: str, item: dict[str, Any], open_calls: list[str]) -> None:
    if kind == "function_call":
        demand_name(item["name"])
        open_calls.append(item["call_id"])
    elif kind == "function_call_output":
        call_id = item["call_id"]
        demand(call_id in open_calls, f"No tool call found for function call output {call_id}.")
        open_calls.remove(call_id)
        asked.results.append(item["output"])
    elif kind == "message" and item["role"] == "user":
        content = item["content"]
        asked.hear(content if isinstance(content, str) else content[0]["text"])


def _check_reasoning(items: list[dict[str, Any]]) -> None:
    for item, after in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") != "reasoning":
            continue
        sealed = item.get("encrypted_content")
        demand(sealed, f"Item '{item['id']}' not found: items are not kept when store is false.")
        text = "".join(part["text"] for part in item["summary"])
        demand(sealed == _sealed(text), "The encrypted content could not be verified.")
        followed = after.get("type") == "function_call" or after.get("role") == "assistant"
        demand(followed, f"Item '{item['id']}' of type 'reasoning' was provided alone.")


def whole(asked: Asked, say: Say, name: str) -> dict[str, Any]:
    """An answer that is not streamed."""
    return _response(asked, say, name, [_done(item) for item in _items(asked, say, name)])


def stream(asked: Asked, say: Say, name: str) -> Iterator[Event]:
    """The events of an answer. There is no [DONE] in this API."""
    numbers = count()

    def event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, "sequence_number": next(numbers), **fields}

    begun = {**_response(asked, say._replace(usage=None), name, []), "status": "in_progress"}
    begun["incomplete_details"] = None
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    items = list(_items(asked, say, name))
    for index, item in enumerate(items):
        where = {"output_index": index, "item_id": item["id"]}
        empty = {"reasoning": {"summary": []}, "message": {"content": []}}
        added = {**item, **empty.get(item["type"], {"arguments": ""})}
        yield event("response.output_item.added", output_index=index, item=added)
        for kind, fields in _item_events(item):
            yield event(kind, **where, **fields)
        yield event("response.output_item.done", output_index=index, item=_done(item))
    ended = _response(asked, say, name, [_done(item) for item in items])
    yield event(f"response.{ended['status']}", response=ended)


def broken(name: str, number: int) -> Event:
    """The event that breaks off a stream."""
    words = error(OVERLOADED, name)["error"]
    fields = {"code": words["code"], "message": words["message"], "param": None}
    return "error", {"type": "error", "sequence_number": number, **fields}


def _items(asked: Asked, say: Say, name: str) -> Iterator[dict[str, Any]]:
    if say.thinking:
        item = {"id": f"rs_{name}", "type": "reasoning", "status": "in_progress"}
        item["summary"] = [{"type": "summary_text", "text": say.thinking}]
        if "reasoning.encrypted_content" in (asked.body.get("include") or []):
            item["encrypted_content"] = _sealed(say.thinking)
        yield item
    parts = []
    if say.text:
        parts.append({"type": "output_text", "text": say.text, "annotations": [], "logprobs": []})
    if say.refusal:
        parts.append({"type": "refusal", "refusal": say.refusal})
    if parts:
        item = {"id": f"msg_{name}", "type": "message", "role": "assistant"}
        yield {**item, "status": "in_progress", "content": parts}
    for number, (tool, text) in enumerate(say.calls):
        item = {"id": f"fc_{name}_{number}", "type": "function_call", "status": "in_progress"}
        item["call_id"] = say.ids[number] if say.ids else f"call_{name}_{number}"
        yield {**item, "name": tool, "arguments": text}


def _done(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "status": "completed"}


def _item_events(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if item["type"] == "function_call":
        for part in pieces(item["arguments"]):
            yield "response.function_call_arguments.delta", {"delta": part}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield "response.function_call_arguments.done", done
    for index, part in enumerate(item.get("summary", ())):
        where = {"summary_index": index}
        kind = "response.reasoning_summary"
        yield f"{kind}_part.added", {**where, "part": {"type": "summary_text", "text": ""}}
        for piece in pieces(part["text"]):
            yield f"{kind}_text.delta", {**where, "delta": piece}
        yield f"{kind}_text.done", {**where, "text": part["text"]}
        yield f"{kind}_part.done", {**where, "part": part}
    for index, part in enumerate(item.get("content", ())):
        where = {"content_index": index}
        kind, key = part["type"], "text" if part["type"] == "output_text" else "refusal"
        more = {"logprobs": []} if key == "text" else {}
        yield "response.content_part.added", {**where, "part": {**part, key: ""}}
        for piece in pieces(part[key]):
            yield f"response.{kind}.delta", {**where, "delta": piece, **more}
        yield f"response.{kind}.done", {**where, key: part[key], **more}
        yield "response.content_part.done", {**where, "part": part}


def _response(asked: Asked, say: Say, name: str, output: list[Any]) -> dict[str, Any]:
    reason = REASONS.get(say.ends)
    if reason and output:
        output[-1]["status"] = "incomplete"
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": asked.system or None,
        "metadata": {},
        "model": say.model or asked.model,
        "output": output,
        "parallel_tool_calls": True,
        "store": asked.body.get("store", True),
        "temperature": asked.body.get("temperature", 1.0),
        "tool_choice": "auto",
        "tools": asked.body.get("tools") or [],
        "usage": None if say.usage is None else _usage(say),
    }


def _usage(say: Say) -> dict[str, Any]:
    counted = counts(say)
    return {
        "input_tokens": counted["in"],
        "input_tokens_details": counted["in_details"],
        "output_tokens": counted["out"],
        "output_tokens_details": counted["out_details"],
        "total_tokens": counted["total"],
    }


def _sealed(text: str) -> str:
    return base64.b64encode(f"sealed:{text}".encode("utf-8", "replace")).decode()
