"""The one policy by which a model is asked again. The SDKs' own retries are off.

A failure that may pass is tried again after a wait: as long as the provider says, and then a random
time below a bound that doubles. Waiting has a budget; past it the trial is not valid, and never
wrong. It knows no API: a `Provider` says what kind of failure it was.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple

from railgym.agents.model import Answer, Conversation, CutOff, Failure, Provider, Usage
from railgym.agents.throttle import Slot, Throttle

MAX_ATTEMPTS = 10
"""Of one call. With the waits below the last comes two to four minutes after the first: outages
that are over sooner cost nothing, and a provider that is down for longer needs a person."""

MAX_SECONDS = 600.0
"""Of waiting between the attempts of one call: who asks for more has no room for this run."""

FIRST_SECONDS = 1.0
"""Bound of the first wait; it doubles with each. A hiccup of a provider lasts about this long."""

LONGEST_SECONDS = 60.0
"""Bound of every wait: limits of providers are counted by the minute."""

MAX_MESSAGE = 1_000
"""Characters of a failure's message: it goes into the log, and may be a whole page."""

_RETRY = (408, 409, 425, 429)
_STOP = (401, 402, 403, 404)
_SLOW_DOWN = (429, 503, 529)


class Retry(NamedTuple):
    """An attempt that failed and was followed by another.

    Attributes:
        failure: What it came to.
        waited: Seconds until the next one, in the throttle too.
    """

    failure: Failure
    waited: float


class Asked(NamedTuple):
    """A call of a model, with all its attempts.

    Attributes:
        result: The answer, or why there is none.
        latency: Seconds of the attempt that was answered; 0 where none was.
        queue: All other seconds: waiting for the throttle, failed attempts, and between them.
        retries: In order.
    """

    result: Answer | Failure
    latency: float
    queue: float
    retries: tuple[Retry, ...]


class RetryPolicy:
    """Asks until there is an answer, or the budget is spent. Threads may share it."""

    def __init__(
        self,
        attempts: int = MAX_ATTEMPTS,
        seconds: float = MAX_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Sets the budget of a call.

        Args:
            attempts: At most.
            seconds: Of waiting between them, at most.
            clock: Seconds.
            sleep: Waits for some seconds.
            draw: A number from 0 to 1, for the jitter.
        """
        self._attempts = attempts
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._draw = draw

    def ask(self, conversation: Conversation, provider: Provider, throttle: Throttle) -> Asked:
        """Makes one call of a model.

        Args:
            conversation: Is asked.
            provider: Reads its failures.
            throttle: Of the model. Its slot is not held between attempts.
        """
        began = self._clock()
        retries: list[Retry] = []
        failed: tuple[Failure, float] | None = None
        budget = self._seconds
        while True:
            with throttle.slot() as slot:
                out = self._clock()
                if failed is not None:
                    retries.append(Retry(failed[0], out - failed[1]))
                result = _attempt(conversation, provider, slot, self._seconds)
                back = self._clock()
            if isinstance(result, Answer):
                throttle.trouble = ""
                return Asked(result, back - out, out - began, tuple(retries))
            wait = self._wait(result, len(retries))
            attempt = len(retries) + 1
            if result.kind != "retry" or attempt >= self._attempts or wait > budget:
                end = self._over_budget(result, wait, budget)
                return Asked(end, 0.0, back - began, tuple(retries))
            budget -= wait
            failed = result, back
            throttle.trouble = (
                f"{result.message or result.type}, attempt {attempt} of {self._attempts}"
            )
            self._sleep(wait)

    def _over_budget(self, failure: Failure, wait: float, left: float) -> Failure:
        """The failure that a call ends with; it says so where the provider asks for too much."""
        if failure.kind != "retry" or failure.retry_after is None or wait <= left:
            return failure
        asked = f"asked to wait {failure.retry_after:.0f} s"
        budget = f"{left:.0f} s are left of the {self._seconds:.0f} s that a call may wait"
        return failure._replace(message=f"{failure.message} ({asked}, and {budget})")

    def _wait(self, failure: Failure, retries: int) -> float:
        """How long to wait. What the provider asks for is the least, and may be nothing at all."""
        bound = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**retries)
        return (failure.retry_after or 0.0) + self._draw() * bound


def _attempt(
    conversation: Conversation, provider: Provider, slot: Slot, patience: float
) -> Answer | Failure:
    errors: tuple[type[Exception], ...] = (CutOff, *provider.errors)
    try:
        answer = conversation.ask()
    except errors as e:
        failure = provider.failure(e)
        if failure.slow_down:
            asked = failure.retry_after or 0.0
            # Beyond the budget nobody waits, or all calls would hang where they ought to fail.
            slot.slow_down(asked if asked <= patience else 0.0)
        return failure
    slot.went_well()
    return answer


def failure_of(
    status: int | None,
    type: str,
    message: str,
    *,
    headers: Mapping[str, str] | None = None,
    usage: Usage | None = None,
    like: int | None = None,
) -> Failure:
    """Sorts a failure by its status, the same for every API.

    Where the key, the money, the model or the address is wrong, so is every trial: the run stops.

    Args:
        status: Of HTTP; None: there was no reply, so that another attempt may fare better.
        type: The provider's word, or the name of the error.
        message: For people; cut where it is long.
        headers: Of the reply, in lower case.
        usage: Tokens that were counted all the same.
        like: The status that the failure would have had, where it came in another way.
    """
    meant = status if like is None else like
    kind: Literal["retry", "refused", "stop"] = "refused"
    if meant is None or meant in _RETRY or meant >= 500:
        kind = "retry"
    elif meant in _STOP:
        kind = "stop"
    wait = retry_after(headers or {})
    shown = message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "..."
    return Failure(kind, status, type, shown, wait, usage, meant in _SLOW_DOWN)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Reads how long a provider asks to wait, in seconds; None: it does not say.

    Args:
        headers: Of its reply, in lower case: `retry-after-ms`, or `retry-after` with seconds or
            a date.
    """
    for name, unit in (("retry-after-ms", 1_000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    at = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())
