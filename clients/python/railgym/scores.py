"""What a server says of the scores of its episodes, as plain tuples."""

from __future__ import annotations

from typing import NamedTuple

from railgym.codec import end_reason_from_proto
from railgym.v1 import episode_service_pb2


class ModelUsage(NamedTuple):
    """What a client claims to have used of one model, in one episode.

    No token is counted twice, but `reasoning` is a part of `output`.

    Attributes:
        provider: As claimed; empty: not said.
        model: As the provider named it, or else as it was asked for.
        calls: That brought an answer.
        unmetered: Of these, calls of which it is not known what they used.
        input: Tokens of prompts that no cache held.
        cache_read: Tokens of prompts that came from a cache.
        cache_write_5m: Tokens written to a cache that keeps them for minutes.
        cache_write_1h: Tokens written to a cache that keeps them for hours.
        output: Tokens of answers.
        reasoning: Tokens of answers that are not shown.
        smallest_prompt: Tokens of the smallest prompt, cached ones included.
        largest_prompt: Tokens of the largest prompt.
    """

    provider: str
    model: str
    calls: int = 0
    unmetered: int = 0
    input: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    output: int = 0
    reasoning: int = 0
    smallest_prompt: int = 0
    largest_prompt: int = 0


class EpisodeScore(NamedTuple):
    """What a replay made of an episode.

    Attributes:
        episode_id: "SESSION_ID.N".
        env_id: Its environment.
        task_id: Its task; empty: none.
        level: Of the task.
        labels: As the session was given.
        outcome: "VERIFIED", "DIVERGED" or "UNREPLAYABLE".
        step: Where it diverged; 0: at the reset.
        detail: The field that diverged, or why it cannot be replayed.
        end_reason: Why the episode ended; None: it has not.
        valid: A model's failure is valid, a failure of the infrastructure is not.
        success: None without a task, and where it is not valid.
        reward: Recomputed; None where it is not valid.
        first_fault: "understanding", "selection", "interpretation" or "convergence"; empty: none.
        metrics: By name; one that does not apply is absent.
        task_sha256: Of the task, as recorded; empty: no task.
        invalid_reason: Why it is not valid; empty: it is.
        steps: Steps that were replayed.
        verdict: By validator, whether it held; empty where the end was not judged.
        fault: Code of the first step with a fault; empty: none.
        tools_used: Tools that were called, each once, in the order of their first calls.
        models: What the client claims of its models.
        temperature: As claimed; None where nothing was, or where calls differ.
        price_source: The price table behind "cost_usd"; "none" where there is no such metric.
    """

    episode_id: str
    env_id: str
    task_id: str
    level: str
    labels: dict[str, str]
    outcome: str
    step: int
    detail: str
    end_reason: str | None
    valid: bool
    success: bool | None
    reward: float | None
    first_fault: str
    metrics: dict[str, float]
    task_sha256: str
    invalid_reason: str
    steps: int
    verdict: dict[str, bool]
    fault: str
    tools_used: list[str]
    models: list[ModelUsage]
    temperature: float | None
    price_source: str


def score_from_proto(message: episode_service_pb2.EpisodeScore) -> EpisodeScore:
    """Reads a score."""
    outcome = episode_service_pb2.ReplayOutcome.Name(message.outcome)
    return EpisodeScore(
        episode_id=message.episode_id,
        env_id=message.env_id,
        task_id=message.task_id,
        level=message.level,
        labels=dict(message.labels),
        outcome=outcome.removeprefix("REPLAY_OUTCOME_"),
        step=message.step,
        detail=message.detail,
        end_reason=end_reason_from_proto(message.end_reason),
        valid=message.valid,
        success=message.success if message.HasField("success") else None,
        reward=message.reward if message.HasField("reward") else None,
        first_fault=message.first_fault,
        metrics=dict(message.metrics),
        task_sha256=message.task_sha256,
        invalid_reason=message.invalid_reason,
        steps=message.steps,
        verdict=dict(message.verdict),
        fault=message.fault,
        tools_used=list(message.tools_used),
        models=[_usage_from_proto(usage) for usage in message.models],
        temperature=message.temperature if message.HasField("temperature") else None,
        price_source=message.price_source,
    )


def _usage_from_proto(message: episode_service_pb2.ModelUsage) -> ModelUsage:
    return ModelUsage(*(getattr(message, field) for field in ModelUsage._fields))
