"""A request as a script sees it, whatever API it came by."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class BadRequest(Exception):
    """The request is one that the real API refuses with a 400."""


def demand(holds: object, message: str) -> None:
    """Raises `BadRequest` unless something holds."""
    if not holds:
        raise BadRequest(message)


def demand_name(name: str) -> None:
    """Raises `BadRequest` unless a tool may be called that."""
    demand(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name), f"{name!r} does not match the pattern")


@dataclass
class Asked:
    """One request.

    Attributes:
        api: "messages", "responses" or "chat".
        body: As sent.
        system: The system's prompt.
        instruction: The first words of the user.
        results: Texts of the results of tools, in order.
        told: Every other later text of the user, in order.
        turns: Answers of the model that stand in the conversation.
        headers: In lower case.
        attempt: How often this very request has come since it last got a whole answer, from 1.
        arrived: By the monotonic clock.
        reply: What the script answered.
    """

    api: str
    body: dict[str, Any]
    system: str = ""
    instruction: str = ""
    results: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    turns: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 0
    arrived: float = 0.0
    reply: Any = None

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return self.body["model"]

    @property
    def stream(self) -> bool:
        """Whether the answer is wanted as a stream."""
        return bool(self.body.get("stream"))

    def hear(self, text: str) -> None:
        """Notes a text of the user."""
        if self.instruction:
            self.told.append(text)
        else:
            self.instruction = text
