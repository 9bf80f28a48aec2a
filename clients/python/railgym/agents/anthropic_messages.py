"""Anthropic Messages, streamed: the arguments of a call reach us in the model's own text.

The prompt is cached up to the latest message, thoughts go back as they came, and usage is what the
stream said last. The SDK is imported when a conversation begins, and not before. It knows nothing
of turns and retries.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from railgym.agents import RunStopped
from railgym.agents.anthropic_stream import Reading
from railgym.agents.model import Answer, CutOff, Failure, Stop, ToolUse, distinct_id, echoed_name
from railgym.agents.replies import events_of, place, refused
from railgym.agents.retry import failure_of
from railgym.spaces import ToolSpec

if TYPE_CHECKING:
    import anthropic

MAX_TOKENS = 16_384
"""Of an answer, thoughts included, where the agent's name does not say; the API wants a number."""

SILENCE_SECONDS = 300.0
"""Without a byte of an answer, until its stream is taken for dead. Anthropic's own is never silent
for long; a server at home may be while it reads a long prompt."""

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")

_NO_KEY = "there is no key for Anthropic: set ANTHROPIC_API_KEY"

STOPS: Mapping[str, Stop] = {
    "tool_use": "calls",
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
    "refusal": "refusal",
}

STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""What an error that comes within a stream would have had for a status."""


class AnthropicMessages:
    """Models behind Messages."""

    provider = "anthropic"
    api = "messages"

    def __init__(self, model: str, base_url: str | None, parameters: Mapping[str, Any]) -> None:
        """Asks nothing yet.

        Args:
            model: As Anthropic calls it.
            base_url: Of another server than Anthropic's, or than ANTHROPIC_BASE_URL says.
            parameters: Sent as they are, but for `cache_ttl` ("5m" or "1h": how long the prompt
                stays in the cache), `reasoning_effort`, and `thinking` as a number (of tokens) or
                as a word.

        Raises:
            ValueError: A parameter cannot be.
        """
        if parameters.get("stream", True) is not True:
            raise ValueError("anthropic is always streamed: else arguments do not come as written")
        self.model = model
        self.parameters = {"max_tokens": MAX_TOKENS, **parameters}
        self.parameters.pop("stream", None)
        self._base_url = base_url
        self._cache = {"type": "ephemeral"}
        if (ttl := self.parameters.get("cache_ttl", "5m")) not in ("5m", "1h"):
            raise ValueError(f"expected cache_ttl 5m or 1h, got {ttl!r}")
        if ttl != "5m":
            self._cache["ttl"] = ttl

    @cached_property
    def client(self) -> anthropic.Anthropic:
        """The SDK's client, which threads share; its own retries are off.

        A server at a `base_url` need not want a key.

        Raises:
            RunStopped: There is no key.
        """
        import anthropic

        given = any(os.environ.get(name) for name in KEYS)
        key = "none" if self._base_url is not None and not given else None
        try:
            client = anthropic.Anthropic(
                api_key=key, base_url=self._base_url, max_retries=0, timeout=SILENCE_SECONDS
            )
        except anthropic.CredentialsError as e:
            raise RunStopped(f"{_NO_KEY} ({e})") from e
        if client.api_key is None and client.auth_token is None and client.credentials is None:
            raise RunStopped(_NO_KEY)
        weakref.finalize(self, client.close)
        return client

    def describe(self) -> dict[str, Any]:
        """What an answer depends on."""
        return {"parameters": dict(self.parameters)}

    def begin(
        self, system: str, instruction: str, tools: Sequence[ToolSpec]
    ) -> MessagesConversation:
        """Begins the conversation of an episode."""
        offered = [
            {"name": name, "description": description, "input_schema": schema}
            for name, description, schema in tools
        ]
        # A mark covers all that comes before it, and the tools come before the system's prompt.
        fixed: dict[str, Any] = {"model": self.model, "tools": offered, **self._sent()}
        if system.strip():
            fixed["system"] = [{"type": "text", "text": system, "cache_control": self._cache}]
        elif offered:
            offered[-1]["cache_control"] = self._cache
        return MessagesConversation(self.client, fixed, instruction, self._cache)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the SDK raises."""
        import anthropic

        return (anthropic.AnthropicError,)

    def failure(self, error: Exception) -> Failure:
        """Says what an error of `ask` means."""
        import anthropic

        if isinstance(error, CutOff):
            meant = STATUSES.get(error.type, 500)
            return failure_of(200, error.type, str(error), usage=error.usage, like=meant)
        if isinstance(error, anthropic.APIStatusError):
            return _of_status(error)
        like = 401 if isinstance(error, anthropic.CredentialsError) else None
        cause = f": {error.__cause__}" if error.__cause__ else ""
        at = f" at {place(error)}" if isinstance(error, anthropic.APIConnectionError) else ""
        return failure_of(None, type(error).__name__, f"{error}{cause}{at}", like=like)

    def _sent(self) -> dict[str, Any]:
        """The parameters as the SDK takes them: it has no arguments for some of the API's."""
        rest = {k: v for k, v in self.parameters.items() if k != "cache_ttl"}
        if (effort := rest.pop("reasoning_effort", None)) is not None:
            rest["output_config"] = {**rest.get("output_config", {}), "effort": effort}
        thinking = rest.get("thinking")
        if isinstance(thinking, str):
            rest["thinking"] = {"type": thinking}
        elif isinstance(thinking, int):
            rest["thinking"] = {"type": "enabled", "budget_tokens": thinking}
        return {"max_tokens": rest.pop("max_tokens"), "extra_body": rest}


class MessagesConversation:
    """The conversation of one episode."""

    def __init__(
        self,
        client: anthropic.Anthropic,
        fixed: Mapping[str, Any],
        instruction: str,
        cache: Mapping[str, Any],
    ) -> None:
        """Begins with the instruction.

        Args:
            client: Of the SDK.
            fixed: What is the same in every request.
            instruction: The first message.
            cache: Marks how far the prompt is to be cached.
        """
        self._client = client
        self._fixed = fixed
        self._cache = cache
        self._messages: list[dict[str, Any]] = []
        self._latest: list[dict[str, Any]] = []
        self._ids: set[str] = set()
        self.tell(instruction)

    def ask(self) -> Answer:
        """Asks once."""
        import anthropic
        import httpx2

        reading = Reading()
        stream = self._client.messages.create(**self._fixed, messages=self._marked(), stream=True)
        try:
            with stream:
                for event in events_of(stream):
                    reading.take(event.to_dict(warnings=False))
        except anthropic.APIStatusError as e:
            if not reading.begun:
                raise
            message, kind = e.api_message or str(e), e.type or "stream_error"
            raise CutOff(message, reading.usage, kind) from e
        except (httpx2.HTTPError, KeyError, ValueError) as e:
            raise CutOff(f"the stream broke: {e!r}", reading.usage) from e
        if not reading.over:
            raise CutOff("the stream ended before the answer did", reading.usage)
        return self._take(reading)

    def give(self, results: Sequence[tuple[ToolUse, str]]) -> None:
        """Adds the results of all calls of the latest answer."""
        self._add(
            {"type": "tool_result", "tool_use_id": use.id, "content": text} for use, text in results
        )

    def tell(self, text: str) -> None:
        """Adds words of the user."""
        self._add([{"type": "text", "text": text}])

    def drop_calls(self) -> None:
        """Forgets all of the latest answer but its words."""
        self._latest = [block for block in self._latest if block["type"] == "text"]

    def _add(self, blocks: Any) -> None:
        if self._latest:
            self._messages.append({"role": "assistant", "content": self._latest})
        self._latest = []
        self._messages.append({"role": "user", "content": list(blocks)})

    def _marked(self) -> Any:
        """The messages, with the mark on the last block of the last one."""
        *before, last = self._messages
        *blocks, block = last["content"]
        marked = {**block, "cache_control": self._cache}
        return [*before, {**last, "content": [*blocks, marked]}]

    def _take(self, reading: Reading) -> Answer:
        calls, words, self._latest = [], [], []
        for block in reading.blocks:
            if block["type"] == "tool_use":
                use = ToolUse(distinct_id(block["id"], self._ids), block["name"], block["text"])
                calls.append(use)
                self._latest.append(_echo(use))
            elif block["type"] != "text":
                self._latest.append(block)
            elif block["text"].strip():  # the API refuses blank ones
                words.append(block["text"])
                self._latest.append({"type": "text", "text": _sendable(block["text"])})
        stop = STOPS.get(reading.stop_reason, "end")
        text, reason = "\n".join(words), reading.stop_reason
        return Answer(calls, text, stop, reason, reading.usage, reading.id, reading.model)


def _of_status(error: anthropic.APIStatusError) -> Failure:
    message = refused(error, error.api_message or str(error))
    kind = error.type or type(error).__name__
    like = STATUSES.get(kind, 500) if error.status_code == 200 else None
    # There is no status of its own for money that has run out, and for some of it no code.
    if (error.error_code or "").endswith("spend_limit_reached"):
        like = 402
    if error.status_code == 400 and "credit balance" in message.lower():
        like = 402
    return failure_of(error.status_code, kind, message, headers=error.response.headers, like=like)


def _echo(use: ToolUse) -> dict[str, Any]:
    """A call as it goes back. The API wants an object; text that is none goes back within one."""
    try:
        given = json.loads(use.arguments_json or "{}", parse_constant=_no_number)
        given = json.loads(_sendable(json.dumps(given, ensure_ascii=False, allow_nan=False)))
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        given = {"INVALID_JSON": _sendable(use.arguments_json)}
    return {"type": "tool_use", "id": use.id, "name": echoed_name(use.name), "input": given}


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _sendable(text: str) -> str:
    """Text without the half of a character, which no request can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
