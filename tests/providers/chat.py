"""OpenAI Chat Completions, from the provider's side; with the habits of local servers on demand."""

from collections.abc import Iterator
from typing import Any

from providers.asked import Asked, demand, demand_name
from providers.openai_words import OVERLOADED, counts, error
from providers.pieces import Event, pieces
from providers.replies import Say

__all__ = ["OVERLOADED", "PATH", "broken", "error", "read", "stream", "whole"]

PATH = "/v1/chat/completions"
STOPS = {
    "calls": "tool_calls",
    "end": "stop",
    "truncated": "length",
    "refusal": "content_filter",
}


def read(body: dict[str, Any]) -> Asked:
    """Reads a request."""
    asked = Asked("chat", body)
    demand(body.get("messages"), "[] is too short - 'messages'")
    open_calls: list[str] = []
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        if role == "tool":
            call_id = message["tool_call_id"]
            demand(call_id in open_calls, "a 'tool' message must follow its 'tool_calls'")
            open_calls.remove(call_id)
            asked.results.append(content)
            continue
        demand(not open_calls, f"tool_call_ids without an answer: {open_calls}")
        if role == "assistant":
            asked.turns += 1
            open_calls = [call["id"] for call in message.get("tool_calls", ())]
            for call in message.get("tool_calls", ()):
                demand_name(call["function"]["name"])
            demand(len(set(open_calls)) == len(open_calls), "tool_call ids must be unique")
            demand(content or open_calls, "an assistant message needs content or tool_calls")
        elif role == "user":
            asked.hear(content)
        else:
            asked.system += content
    demand(not open_calls, f"tool_call_ids without an answer: {open_calls}")
    return asked


def whole(asked: Asked, say: Say, name: str) -> dict[str, Any]:
    """An answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": say.text or None}
    message["refusal"] = say.refusal or None
    if say.thinking:
        message["reasoning_content"] = say.thinking
    if say.calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": tool, "arguments": text}}
            for call_id, tool, text in _calls(say, name)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": STOPS[say.ends]}
    return _completion(asked, say, name, "chat.completion", [choice], _usage(say))


def stream(asked: Asked, say: Say, name: str) -> Iterator[Event]:
    """The chunks of an answer, with the usage last of all where it was asked for."""
    with_usage = (asked.body.get("stream_options") or {}).get("include_usage")

    def chunk(choices: list[Any], **usage: Any) -> Event:
        return "", _completion(asked, say, name, "chat.completion.chunk", choices, **usage)

    def choice(delta: dict[str, Any], stop: str | None = None) -> Event:
        fields = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
        return chunk([fields], **({"usage": None} if with_usage else {}))

    yield choice({"role": "assistant", "content": None if say.calls else "", "refusal": None})
    for key, text in _texts(say):
        for part in pieces(text):
            yield choice({key: part})
    for index, (call_id, tool, text) in enumerate(_calls(say, name)):
        first = {"index": index, "id": call_id, "type": "function"}
        yield choice({"tool_calls": [{**first, "function": {"name": tool, "arguments": ""}}]})
        for part in pieces(text):
            yield choice({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield choice({}, STOPS[say.ends])
    if with_usage and say.usage is not None:
        yield chunk([], usage=_usage(say))
    yield "", "[DONE]"


def broken(name: str, number: int) -> Event:
    """The chunk that breaks off a stream."""
    return "", error(OVERLOADED, name)


def _calls(say: Say, name: str) -> Iterator[tuple[str | None, str, str]]:
    for number, (tool, text) in enumerate(say.calls):
        given = say.ids[number] if say.ids else f"call_{name}_{number}"
        yield given or None, tool, text


def _texts(say: Say) -> Iterator[tuple[str, str]]:
    yield "reasoning_content", say.thinking
    yield "content", say.text
    yield "refusal", say.refusal


def _completion(
    asked: Asked, say: Say, name: str, kind: str, choices: list[Any], *usage: Any, **more: Any
) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{name}",
        "object": kind,
        "created": 1_790_000_000,
        "model": say.model or asked.model,
        "choices": choices,
        **({"usage": usage[0]} if usage and usage[0] else {}),
        **more,
    }


def _usage(say: Say) -> dict[str, Any] | None:
    if say.usage is None:
        return None
    counted = counts(say)
    return {
        "prompt_tokens": counted["in"],
        "prompt_tokens_details": counted["in_details"],
        "completion_tokens": counted["out"],
        "completion_tokens_details": counted["out_details"],
        "total_tokens": counted["total"],
    }
