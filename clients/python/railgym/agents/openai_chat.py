"""OpenAI's Chat Completions, for any server that speaks it: vLLM, llama.cpp, Ollama and others.

It puts up with what such servers leave out or do otherwise. It knows nothing of turns and retries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from railgym.agents.model import (
    Answer,
    Failure,
    ToolUse,
    distinct_id,
    echoed_name,
)
from railgym.agents.openai_chat_answer import THOUGHTS, ChatAnswer
from railgym.agents.openai_sdk import OpenAIModel, cut_off, echoed, expect_answer
from railgym.agents.replies import events_of
from railgym.spaces import ToolSpec


class OpenAIChat(OpenAIModel):
    """Models behind Chat Completions."""

    api = "chat"

    def __init__(self, model: str, base_url: str | None, parameters: Mapping[str, Any]) -> None:
        """Asks nothing yet; see `OpenAIModel`.

        Args:
            model: As the server calls it.
            base_url: None: OpenAI's own, which has another name for `max_tokens`.
            parameters: Of the API.
        """
        super().__init__(model, base_url, parameters)
        self.knows_stream_options = True
        if base_url is None and "max_tokens" in self.parameters:
            self.parameters["max_completion_tokens"] = self.parameters.pop("max_tokens")

    def begin(self, system: str, instruction: str, tools: Sequence[ToolSpec]) -> ChatConversation:
        """Begins the conversation of an episode.

        Raises:
            RunStopped: There is no key.
        """
        return ChatConversation(self, system, instruction, tools)

    def failure(self, error: Exception) -> Failure:
        """Reads what `ask` raised. A server that knows no stream options is asked without."""
        failure = super().failure(error)
        if failure.status == 400 and "stream_options" in failure.message:
            self.knows_stream_options = False
            return failure._replace(kind="retry")
        return failure


class ChatConversation:
    """The conversation of one episode."""

    def __init__(
        self, provider: OpenAIChat, system: str, instruction: str, tools: Sequence[ToolSpec]
    ) -> None:
        """Begins with the system's prompt and the instruction."""
        self._provider = provider
        self._create: Any = provider.client.chat.completions.create
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            {"role": "user", "content": instruction},
        ]
        self._tools = [{"type": "function", "function": tool._asdict()} for tool in tools]
        self._ids: set[str] = set()

    def ask(self) -> Answer:
        """Asks once."""
        request: dict[str, Any] = {"model": self._provider.model, "messages": self._messages}
        if self._tools:
            request["tools"] = self._tools
        request["extra_body"] = self._provider.parameters
        whole = self._ask_streamed(request) if self._provider.stream else self._ask_whole(request)
        calls = [ToolUse(self._id(call.id), call.name, call.arguments) for call in whole.calls]
        if whole.text or calls:
            self._messages.append(echoed(_message(whole, calls)))
        text, word = whole.text or whole.refusal, whole.finish_reason or ""
        return Answer(calls, text, whole.stop, word, whole.usage, whole.id, whole.model)

    def _ask_whole(self, request: dict[str, Any]) -> ChatAnswer:
        with cut_off():
            answer = self._create(**request)
        expect_answer(answer)
        return ChatAnswer().of(answer)

    def _ask_streamed(self, request: dict[str, Any]) -> ChatAnswer:
        if self._provider.knows_stream_options:
            request["stream_options"] = {"include_usage": True}
        whole = ChatAnswer()
        with self._create(**request, stream=True) as chunks, cut_off(whole):
            return whole.of_chunks(events_of(chunks))

    def _id(self, given: str | None) -> str:
        return distinct_id(given, self._ids)

    def give(self, results: Sequence[tuple[ToolUse, str]]) -> None:
        """Adds the results of a turn's calls."""
        for use, text in results:
            self._messages.append({"role": "tool", "tool_call_id": use.id, "content": text})

    def tell(self, text: str) -> None:
        """Adds words of the user.

        They join those before, where the model said nothing in between: many a chat template
        wants the two sides to alternate.
        """
        latest = self._messages[-1]
        if latest["role"] == "user":
            latest["content"] += f"\n\n{text}"
        else:
            self._messages.append({"role": "user", "content": text})

    def drop_calls(self) -> None:
        """Forgets the calls of the latest answer, and keeps its text."""
        if self._messages[-1].pop("tool_calls", None) is None:
            return
        for name in THOUGHTS:
            self._messages[-1].pop(name, None)
        if not self._messages[-1]["content"]:
            self._messages.pop()


def _message(whole: ChatAnswer, calls: Sequence[ToolUse]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": whole.text or None}
    if calls:
        message |= whole.thoughts
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": echoed_name(call.name),
                    "arguments": _legal(call.arguments_json),
                },
            }
            for call in calls
        ]
    return message


def _legal(text: str) -> str:
    """Argument text as it can stand in a conversation: chat templates parse it again."""
    try:
        legal = isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        legal = False
    return (text or "{}") if legal else json.dumps({"not_a_json_object": text})
