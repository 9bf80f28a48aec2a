"""What a client claims of its models: tokens, latency, waiting, retries, model and temperature.

Claims are never checked and never judge an episode: they say what it cost, not how good it was.
Whatever stands in one, reading it does not raise. A value that is not what it should be counts as
not said, and what was not said is absent, never 0. Prices are not known here: see `prices`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from env_server.arguments import BadJson, BrokenJson, parse_object
from railgym.scores import ModelUsage
from railgym.v1 import episode_pb2

BUCKETS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")
"""Kinds of tokens, of which none is counted twice."""

COUNTS = (*BUCKETS, "reasoning")

METRICS = (
    "turns",
    "model_calls",
    "total_tokens",
    *(f"tokens/{name}" for name in COUNTS),
    "cost_usd",
    "latency_ms",
    "queue_ms",
    "retries",
)
"""The metrics that rest on claims."""

MAX_TOKENS = 10**12
"""Of one call; what claims more is not believed."""

MAX_MILLISECONDS = 1e12

_NAME_LENGTH = 200


class Call(NamedTuple):
    """One call of a model, with the tries before the one that answered.

    Attributes:
        turn: Of the model, from 1; None: not said.
        usage: What was billed, as far as it was said.
        said: The token counts that were.
        answered: Whether an answer came.
        latency_ms: Of the try that answered; None: not said.
        queue_ms: Of waiting for the provider; None: not said.
        retries: Tries before.
        temperature: None: not said.
    """

    turn: int | None
    usage: ModelUsage
    said: frozenset[str]
    answered: bool
    latency_ms: float | None
    queue_ms: float | None
    retries: int
    temperature: float | None


class Claimed(NamedTuple):
    """What the claims of an episode come to.

    Attributes:
        models: What was used of each model, in the order of first calls.
        metrics: Those of `METRICS` that were claimed, but the cost.
        temperature: None where none was claimed, and where calls differ.
        calls: What was used by each call, in order.
    """

    models: list[ModelUsage]
    metrics: dict[str, float]
    temperature: float | None
    calls: list[ModelUsage]


def read_claims(claims: Iterable[episode_pb2.AgentClaim]) -> Claimed:
    """Reads the claims of an episode."""
    calls = [call for claim in claims if (call := _call_of(claim.claim_json)) is not None]
    by_model: dict[tuple[str, str], list[ModelUsage]] = defaultdict(list)
    for call in calls:
        by_model[call.usage.provider, call.usage.model].append(call.usage)
    models = [add(usages) for usages in by_model.values()]
    temperatures = {call.temperature for call in calls}
    only = temperatures.pop() if len(temperatures) == 1 else None
    metrics = _metrics(calls, models) if calls else {}
    return Claimed(models, metrics, only, [call.usage for call in calls])


def read_call(claim: Mapping[str, Any]) -> Call | None:
    """Reads the claim of a model call; None where it is one of something else."""
    if claim.get("kind") != "model_call":
        return None
    retries = [item for item in _items(claim.get("retries")) if isinstance(item, Mapping)]
    usages = [u for item in retries if isinstance(u := item.get("usage"), Mapping)]
    answered = claim.get("error") is None
    answer = claim.get("usage")
    if isinstance(answer, Mapping):
        usages.append(answer)
    parameters = claim.get("parameters")
    temperature = parameters.get("temperature") if isinstance(parameters, Mapping) else None
    model = ModelUsage(
        provider=_text(claim.get("provider")),
        model=_text(claim.get("answered_by")) or _text(claim.get("model")),
        calls=int(answered),
        unmetered=int(answered and not _is_metered(answer)),
    )
    return Call(
        turn=_count(claim.get("turn")),
        usage=add([model, *(_usage(model, usage) for usage in usages)]),
        said=frozenset(n for n in COUNTS for u in usages if _count(u.get(n)) is not None),
        answered=answered,
        latency_ms=_number(claim.get("latency_ms"), MAX_MILLISECONDS),
        queue_ms=_number(claim.get("queue_ms"), MAX_MILLISECONDS),
        retries=len(retries),
        temperature=_number(temperature, 100),
    )


def _call_of(claim_json: str) -> Call | None:
    try:
        return read_call(parse_object(claim_json))
    except (BadJson, BrokenJson):
        return None


def _metrics(calls: list[Call], models: list[ModelUsage]) -> dict[str, float]:
    """The metrics of one call or more. Tokens are only there where every answer told of them."""
    answers = [call for call in calls if call.answered]
    named = {call.turn for call in answers if call.turn is not None}
    found: dict[str, float] = {
        "turns": len(named) + sum(call.turn is None for call in answers),
        "model_calls": len(calls),
        "retries": sum(call.retries for call in calls),
    }
    said = {name for call in calls for name in call.said}
    if said and not any(usage.unmetered for usage in models):
        totals = {name: sum(getattr(u, name) for u in models) for name in COUNTS}
        found |= {f"tokens/{name}": totals[name] for name in COUNTS if name in said}
        found["total_tokens"] = sum(totals[name] for name in BUCKETS)
    for name in ("latency_ms", "queue_ms"):
        times = [time for call in calls if (time := getattr(call, name)) is not None]
        if times:
            found[name] = math.fsum(times)
    return {name: float(value) for name, value in found.items()}


def _usage(model: ModelUsage, usage: Mapping[str, Any]) -> ModelUsage:
    """What one try used."""
    counts = {name: _count(usage.get(name)) or 0 for name in COUNTS}
    prompt = sum(counts[name] for name in BUCKETS if name != "output")
    return ModelUsage(
        model.provider, model.model, **counts, smallest_prompt=prompt, largest_prompt=prompt
    )


def add(usages: Sequence[ModelUsage]) -> ModelUsage:
    """What several calls of one model used together; one at least."""
    totals: Counter[str] = Counter()
    for usage in usages:
        totals.update({n: getattr(usage, n) for n in ("calls", "unmetered", *COUNTS)})
    prompts = [usage.smallest_prompt for usage in usages if usage.smallest_prompt]
    return ModelUsage(
        usages[0].provider,
        usages[0].model,
        **totals,
        smallest_prompt=min(prompts, default=0),
        largest_prompt=max(usage.largest_prompt for usage in usages),
    )


def _is_metered(usage: object) -> bool:
    """Whether a usage says enough to be priced: of a cache, it need not say anything."""
    if not isinstance(usage, Mapping):
        return False
    return all(_count(usage.get(name)) is not None for name in ("input", "output"))


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    """A text that can go anywhere; what is no text is empty."""
    if not isinstance(value, str):
        return ""
    return value[:_NAME_LENGTH].encode("utf-8", "backslashreplace").decode()


def _number(value: object, most: float) -> float | None:
    """A number from 0 to `most`; None: it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= most else None


def _count(value: object) -> int | None:
    """A whole number of tokens; None: it is none."""
    number = _number(value, MAX_TOKENS)
    return int(number) if number is not None and number.is_integer() else None
