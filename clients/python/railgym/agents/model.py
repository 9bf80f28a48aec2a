"""A model behind an API, as an agent needs it: what it answers, and how it fails.

One module for each API implements `Provider` and `Conversation`. This one knows no API, no
retries and no turns: `railgym.agents.retry` asks again, `railgym.agents.turns` acts on answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from railgym.spaces import ToolSpec

Stop: TypeAlias = Literal["calls", "end", "truncated", "refusal"]


class ToolUse(NamedTuple):
    """One call in a model's answer.

    Attributes:
        id: Names the call in this conversation; no other call of it has the same.
        name: Of the tool, as the model wrote it.
        arguments_json: The model's own text, unchanged.
    """

    id: str
    name: str
    arguments_json: str


class Usage(NamedTuple):
    """Tokens of one call, in buckets that do not overlap.

    Attributes:
        input: Neither read from a cache nor written to one.
        cache_read: Read from a cache.
        cache_write_5m: Written to a cache that lasts five minutes, or as long as the provider
            has it by default.
        cache_write_1h: Written to a cache that lasts an hour.
        output: All that came out, `reasoning` included.
        reasoning: The part of `output` that the model thought.
    """

    input: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    output: int = 0
    reasoning: int = 0


class Answer(NamedTuple):
    """One whole answer of a model.

    Attributes:
        calls: In the model's order.
        text: Its words, without its thoughts.
        stop: Why it ended.
        stop_reason: The same in the provider's own word; empty where it gave none.
        usage: None where the provider said nothing of it.
        response_id: The provider's; empty where it gave none.
        model: That answered, in the provider's words.
    """

    calls: Sequence[ToolUse]
    text: str
    stop: Stop
    stop_reason: str
    usage: Usage | None
    response_id: str
    model: str


class CutOff(Exception):
    """An answer broke off, or what came was no answer at all.

    Attributes:
        usage: Tokens that were counted until then; None where nothing was said of them.
        type: The provider's word for it where it gave one, such as "overloaded_error".
    """

    def __init__(self, message: str, usage: Usage | None = None, type: str = "cut_off") -> None:
        """Keeps the usage and the type beside the message."""
        super().__init__(message)
        self.usage = usage
        self.type = type


class Failure(NamedTuple):
    """What an attempt to ask a model came to, instead of an answer.

    Attributes:
        kind: "retry": another attempt may fare better. "refused": this request never will.
            "stop": no request will, for instance because the key is wrong.
        status: Of HTTP; None where there was none.
        type: The provider's word, or the name of the error.
        message: For people.
        retry_after: Seconds that the provider asks to wait; None: it does not say.
        usage: Tokens that were counted all the same.
        slow_down: The provider has more to do than it can.
    """

    kind: Literal["retry", "refused", "stop"]
    status: int | None
    type: str
    message: str
    retry_after: float | None = None
    usage: Usage | None = None
    slow_down: bool = False


class Conversation(Protocol):
    """What was said in one episode. The first message, with the instruction, is in it."""

    def ask(self) -> Answer:
        """Asks once, and adds the answer to the conversation if it came whole.

        Raises:
            CutOff: It did not.
            Exception: One of the provider's `errors`.
        """

    def give(self, results: Sequence[tuple[ToolUse, str]]) -> None:
        """Adds the results of all calls of the latest answer, in one message and in their order."""

    def tell(self, text: str) -> None:
        """Adds words of the user."""

    def drop_calls(self) -> None:
        """Forgets all of the latest answer but its words, and where it has none all of it.

        What is left must be a conversation that the API takes, once the user has spoken.
        """


class Provider(Protocol):
    """A model behind an API. Threads share it, each with a conversation of its own."""

    @property
    def provider(self) -> str:
        """Whose API it is, for instance "anthropic"."""

    @property
    def api(self) -> str:
        """Which API: "messages", "responses", "chat" or "json"."""

    @property
    def model(self) -> str:
        """The model as it is asked for."""

    def describe(self) -> dict[str, Any]:
        """`parameters`, and whatever else an answer depends on: no secrets, no address."""

    def begin(self, system: str, instruction: str, tools: Sequence[ToolSpec]) -> Conversation:
        """Begins a conversation.

        Raises:
            RunStopped: There is no key.
        """

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The classes of what `ask` may raise besides `CutOff`: the SDK's own base class."""

    def failure(self, error: Exception) -> Failure:
        """Reads a `CutOff`, or one of `errors`."""


_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def distinct_id(given: str | None, taken: set[str]) -> str:
    """The id of a call: the given one, unless it is missing, malformed or taken already.

    Args:
        given: By the model's provider.
        taken: All ids of the conversation; the new one is added.
    """
    name = given if given and _ID.fullmatch(given) and given not in taken else ""
    number = len(taken)
    while not name or name in taken:
        number += 1
        name = f"call_{number}"
    taken.add(name)
    return name


def echoed_name(name: str) -> str:
    """A tool's name as APIs take it back: a model may make up one that they refuse."""
    return _NAME.sub("_", name)[:64] or "_"
