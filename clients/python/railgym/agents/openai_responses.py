"""OpenAI's Responses, without anything kept there: the whole conversation goes along each time.

Items of reasoning come sealed and go back as they came. It knows nothing of turns and retries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from railgym.agents.model import (
    Answer,
    CutOff,
    Failure,
    Stop,
    ToolUse,
    distinct_id,
    echoed_name,
)
from railgym.agents.openai_sdk import OpenAIModel, cut_off, echoed, expect_answer, usage_of
from railgym.agents.replies import events_of
from railgym.spaces import ToolSpec

INCOMPLETE: Mapping[str, Stop] = {"max_output_tokens": "truncated", "content_filter": "refusal"}


class OpenAIResponses(OpenAIModel):
    """Models behind Responses."""

    api = "responses"

    def __init__(self, model: str, base_url: str | None, parameters: Mapping[str, Any]) -> None:
        """Asks nothing yet; see `OpenAIModel`.

        Args:
            model: As the server calls it.
            base_url: None: OpenAI's own.
            parameters: Of the API; `max_tokens` and `reasoning_effort` may have these names too,
                which are those of other APIs.
        """
        super().__init__(model, base_url, parameters)
        self.can_seal = True
        if "max_tokens" in self.parameters:
            self.parameters["max_output_tokens"] = self.parameters.pop("max_tokens")
        if "reasoning_effort" in self.parameters:
            self.parameters["reasoning"] = {"effort": self.parameters.pop("reasoning_effort")}

    def begin(
        self, system: str, instruction: str, tools: Sequence[ToolSpec]
    ) -> ResponsesConversation:
        """Begins the conversation of an episode.

        Raises:
            RunStopped: There is no key.
        """
        return ResponsesConversation(self, system, instruction, tools)

    def failure(self, error: Exception) -> Failure:
        """Reads what `ask` raised. A model that does not reason has nothing to seal."""
        failure = super().failure(error)
        if failure.status == 400 and "Encrypted content is not supported" in failure.message:
            self.can_seal = False
            return failure._replace(kind="retry")
        return failure


class ResponsesConversation:
    """The conversation of one episode."""

    def __init__(
        self, provider: OpenAIResponses, system: str, instruction: str, tools: Sequence[ToolSpec]
    ) -> None:
        """Begins with the system's prompt and the instruction."""
        self._provider = provider
        self._create: Any = provider.client.responses.create
        self._items: list[dict[str, Any]] = [{"role": "user", "content": instruction}]
        self._fixed: dict[str, Any] = {
            "model": provider.model,
            "instructions": system,
            # "strict" off: it would have OpenAI rewrite the schemas.
            "tools": [{"type": "function", **tool._asdict(), "strict": False} for tool in tools],
            "store": False,
            "extra_body": provider.parameters,
        }
        self._ids: set[str] = set()
        self._latest: list[dict[str, Any]] = []

    def ask(self) -> Answer:
        """Asks once."""
        request = {**self._fixed, "input": self._items}
        if self._provider.can_seal:
            request["include"] = ["reasoning.encrypted_content"]
        if self._provider.stream:
            with self._create(**request, stream=True) as events, cut_off():
                return self._take(_last_of(events_of(events)))
        with cut_off():
            answer = self._create(**request)
        expect_answer(answer)
        return self._take(answer)

    def _take(self, response: Any) -> Answer:
        """Adds a whole answer to the conversation."""
        usage = usage_of(response.usage, "input_tokens", "output_tokens")
        if response.status == "failed":
            error = response.error
            raise CutOff(error.message, usage, error.code) if error else CutOff("it failed", usage)
        if response.status not in ("completed", "incomplete"):
            raise CutOff(f"expected a whole answer, got one that is {response.status}", usage)
        self._latest = [item.to_dict(exclude_none=True) for item in response.output or []]
        calls = self._name_calls()
        text, refusal = _texts(self._latest)
        self._latest = [echoed(item) for item in self._latest]
        self._items += self._latest
        reason = response.incomplete_details.reason if response.incomplete_details else None
        stop: Stop = "refusal" if refusal else "calls" if calls else "end"
        if response.status == "incomplete":
            stop = INCOMPLETE.get(reason or "", "truncated")
        word = reason or response.status
        return Answer(calls, text or refusal, stop, word, usage, response.id, response.model)

    def _name_calls(self) -> list[ToolUse]:
        calls = []
        for item in self._latest:
            if item["type"] == "function_call":
                item["call_id"] = distinct_id(item.get("call_id"), self._ids)
                calls.append(ToolUse(item["call_id"], item["name"], item["arguments"]))
                item["name"] = echoed_name(item["name"])
        return calls

    def give(self, results: Sequence[tuple[ToolUse, str]]) -> None:
        """Adds the results of a turn's calls."""
        for use, text in results:
            item = {"type": "function_call_output", "call_id": use.id, "output": text}
            self._items.append(item)

    def tell(self, text: str) -> None:
        """Adds words of the user."""
        self._items.append({"role": "user", "content": text})

    def drop_calls(self) -> None:
        """Forgets the latest answer but for its text: no item may stand without its others."""
        if not self._latest:
            return
        del self._items[-len(self._latest) :]
        text, _ = _texts(self._latest)
        self._latest = [{"role": "assistant", "content": text}] if text else []
        self._items += self._latest


def _last_of(events: Iterable[Any]) -> Any:
    """The whole answer, which stands in the last event of a stream."""
    for event in events:
        match event.type:
            case "response.completed" | "response.incomplete" | "response.failed":
                return event.response
            case "error":
                raise CutOff(event.message, type=event.code or "error")
    raise CutOff("the stream ended before the answer did")


def _texts(items: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """What was said, and what was said in refusal."""
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    said = "".join(part["text"] for part in parts if part["type"] == "output_text")
    refused = "".join(part["refusal"] for part in parts if part["type"] == "refusal")
    return said, refused
