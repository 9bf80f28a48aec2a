"""Agents that ask a model: how its answers become steps, turn by turn.

The calls of one answer run in order, and all their results go back in one message. A turn that was
cut runs none of its calls, and a refusal ends the episode. An answer with nothing in it is told to
the model once; after a second one in a row the episode is ended with an empty answer. It knows no
API and no server.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any

from railgym.actions import Action, Final, NoAction, Text, ToolCall, Transition
from railgym.agents import Briefing, ModelFailed, Move, RunStopped, prompts
from railgym.agents.model import Answer, Conversation, Failure, Provider, ToolUse, Usage
from railgym.agents.retry import Asked, RetryPolicy
from railgym.agents.throttle import Throttle
from railgym.spaces import ToolSpace


class ModelAgent:
    """An agent that asks a model. Threads may share it: each episode has its own conversation.

    Attributes:
        provider: The model.
        throttle: Holds back its calls; agents of one model should share it.
        prompt: What the model is told before its task.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        prompt: str | None = None,
        throttle: Throttle | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Makes an agent. Nothing is sent before its first step.

        Args:
            provider: The model.
            prompt: In place of ours, see `railgym.agents.prompts`.
            throttle: None: one of its own.
            retry: None: the usual budget.
        """
        self.provider = provider
        self.throttle = throttle or Throttle()
        self.prompt = prompts.for_api(provider.api) if prompt is None else prompt
        self._retry = retry or RetryPolicy()

    def describe(self) -> dict[str, Any]:
        """What its results depend on: provider, api, model, parameters and `prompt_sha256`."""
        model = self.provider
        told = {"provider": model.provider, "api": model.api, "model": model.model}
        return {**told, **model.describe(), "prompt_sha256": prompts.sha256(self.prompt)}

    def __call__(self, briefing: Briefing) -> Turns:
        """Begins an episode.

        Raises:
            RunStopped: There is no key.
            ValueError: The environment has no tools.
        """
        space = briefing.action_space
        if not isinstance(space, ToolSpace):
            raise ValueError(f"a model plays environments with tools, not one of {space}")
        system = prompts.fill(self.prompt, space.tools)
        task = "\n\n".join(filter(None, (briefing.instruction, str(briefing.observation))))
        conversation = self.provider.begin(system, task, space.tools)
        return Turns(conversation, self._ask, Text if self.provider.api == "json" else Final)

    def _ask(self, conversation: Conversation, turn: int) -> tuple[Answer, dict[str, Any]]:
        """Asks the model, and gives its answer with the claim of the call."""
        asked = self._retry.ask(conversation, self.provider, self.throttle)
        claim = {"kind": "model_call", "turn": turn, **self.describe(), **_claimed(asked)}
        if isinstance(asked.result, Answer):
            return asked.result, claim
        error = RunStopped if asked.result.kind == "stop" else ModelFailed
        raise error(_in_words(asked.result, len(asked.retries) + 1), claim)


class Turns:
    """The policy of a model in one episode.

    Attributes:
        turn: Of the model, from 1; 0: it has not been asked yet.
    """

    def __init__(
        self,
        conversation: Conversation,
        ask: Callable[[Conversation, int], tuple[Answer, dict[str, Any]]],
        spoken: Callable[[str], Action],
    ) -> None:
        """Begins an episode.

        Args:
            conversation: With the model; the instruction is in it.
            ask: Has it answered, and says what is to be claimed of that.
            spoken: What an answer in words is: the final one, or one to be parsed.
        """
        self.turn = 0
        self._conversation = conversation
        self._ask = ask
        self._spoken = spoken
        self._rest: deque[ToolUse] = deque()
        self._running: ToolUse | None = None
        self._results: list[tuple[ToolUse, str]] = []
        self._empty = 0

    def __call__(self, seen: Transition | None) -> Move:
        """Gives the next call of the turn, or asks for the next turn.

        Raises:
            ModelFailed: The model could not be asked.
        """
        if seen is not None:
            self._hear(str(seen.observation))
        if self._rest:
            return Move(self._next_call(), self.turn)
        self.turn += 1
        answer, claim = self._ask(self._conversation, self.turn)
        return Move(self._act_on(answer), self.turn, claim)

    def _hear(self, observation: str) -> None:
        """Keeps what came of a call until the turn is over; tells of anything else at once."""
        if self._running is None:
            self._conversation.tell(observation)
            return
        self._results.append((self._running, observation))
        self._running = None
        if not self._rest:
            self._conversation.give(self._results)
            self._results = []

    def _act_on(self, answer: Answer) -> Action:
        nothing = _holds_nothing(answer)
        self._empty = self._empty + 1 if nothing else 0
        if answer.stop == "refusal":
            return NoAction("refusal", answer.text)
        if _is_cut(answer):
            self._conversation.drop_calls()
            return NoAction("truncated_output", answer.text)
        if nothing:
            self._conversation.drop_calls()
            return NoAction("empty_response", answer.text) if self._empty < 2 else Final("")
        if answer.calls:
            self._rest.extend(answer.calls)
            return self._next_call()
        return self._spoken(answer.text)

    def _next_call(self) -> ToolCall:
        self._running = self._rest.popleft()
        return ToolCall(self._running.name, self._running.arguments_json)


def _holds_nothing(answer: Answer) -> bool:
    """Whether there is nothing to act on; words that only announce a call are no answer."""
    if answer.stop == "truncated":
        return False
    return not answer.calls and (answer.stop == "calls" or not answer.text.strip())


def _is_cut(answer: Answer) -> bool:
    """Whether the token limit cut the answer, be it that only its last call shows that."""
    if answer.stop == "truncated":
        return True
    return bool(answer.calls) and _breaks_off(answer.calls[-1].arguments_json)


_STRING = re.compile(r'"(?:[^"\\]|\\.)*("?)', re.DOTALL)
"""A string, or the rest of the text where it does not end: else looking for its end would begin
anew at every quote."""


def _breaks_off(text: str) -> bool:
    """Whether JSON text begins an object and ends within it."""
    if not text.lstrip().startswith("{"):
        return False
    bare = _STRING.sub(lambda string: "" if string[1] else '"', text)
    opened = bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
    return opened > 0 or '"' in bare


def _claimed(asked: Asked) -> dict[str, Any]:
    """What a claim says of how a call went."""
    return {
        **_outcome(asked.result),
        "usage": _tokens(asked.result.usage),
        "latency_ms": _milliseconds(asked.latency),
        "queue_ms": _milliseconds(asked.queue),
        "retries": [
            {
                "status": retry.failure.status,
                "error": retry.failure.type,
                "waited_ms": _milliseconds(retry.waited),
                "usage": _tokens(retry.failure.usage),
            }
            for retry in asked.retries
        ],
    }


def _outcome(result: Answer | Failure) -> dict[str, Any]:
    if isinstance(result, Answer):
        told = {"answered_by": result.model, "stop": result.stop_reason}
        return {**told, "response_id": result.response_id, "error": None}
    error = {"status": result.status, "type": result.type, "message": result.message}
    return {"answered_by": None, "stop": None, "response_id": None, "error": error}


def _tokens(usage: Usage | None) -> dict[str, int] | None:
    return None if usage is None else usage._asdict()


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1_000, 3)


def _in_words(failure: Failure, attempts: int) -> str:
    status = "" if failure.status is None else f" (status {failure.status})"
    tries = "" if attempts == 1 else f", at attempt {attempts}"
    return f"{failure.type}{status}{tries}: {failure.message}"
