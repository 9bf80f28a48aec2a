"""Inspect's `.eval` logs, one for each agent and environment, by Inspect's own writer.

A sample is an episode: its conversation, its score, and what the models used. An episode that is
not valid is a sample with an error and without a score, so that Inspect's means leave it out as
ours do. Needs the extra "inspect".
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env_server.arguments import BadJson, BrokenJson, canonical_json, parse_object
from env_server.export.conversation import Message, is_conversation, messages, task_text
from env_server.export.selection import Scored
from env_server.scoring.statistics import proportion
from railgym.scores import ModelUsage

if TYPE_CHECKING:
    from inspect_ai import log as inspect_log
    from inspect_ai import model as inspect_model
    from inspect_ai import scorer as inspect_scorer
    from inspect_ai import tool as inspect_tool

SCORER = "railgym"
NO_MODEL = "none/none"
"""For Inspect, a log has a model; scripted agents have none."""


def write_logs(episodes: Iterable[Scored], folder: Path) -> list[Path]:
    """Writes a log for each agent and environment into a folder.

    Episodes that are no conversations are left out.

    Raises:
        ModuleNotFoundError: Inspect is not installed.
        OSError: The folder or a file cannot be written.
    """
    from inspect_ai.log import write_eval_log

    groups: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for episode in episodes:
        if is_conversation(episode.trace):
            groups[episode.score.agent, episode.score.env_id].append(episode)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, ((agent, env_id), members) in enumerate(sorted(groups.items()), start=1):
        began = _time(min(member.trace.start_time for member in members))
        stamp = datetime.fromisoformat(began).strftime("%Y-%m-%dT%H-%M-%S+00-00")
        path = folder / f"{stamp}_{_slug(env_id)}_{number:03}-{_slug(agent)}.eval"
        write_eval_log(_log(agent, env_id, members), str(path), format="eval")
        paths.append(path)
    return paths


def _log(agent: str, env_id: str, members: Sequence[Scored]) -> inspect_log.EvalLog:
    from inspect_ai.log import EvalLog, EvalStats

    samples = _samples(members)
    usage: dict[str, inspect_model.ModelUsage] = {}
    for sample in samples:
        for name, used in sample.model_usage.items():
            usage[name] = usage[name] + used if name in usage else used
    started = _time(min(member.trace.start_time for member in members))
    ended = _time(max(_end(member) for member in members))
    return EvalLog(
        status="success",
        eval=_spec(agent, env_id, members, samples),
        results=_results(members),
        stats=EvalStats(started_at=started, completed_at=ended, model_usage=usage),
        samples=samples,
    )


def _spec(
    agent: str,
    env_id: str,
    members: Sequence[Scored],
    samples: Sequence[inspect_log.EvalSample],
) -> inspect_log.EvalSpec:
    """What was evaluated. Its list has a column for arguments: models may be the same."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalSpec

    ids = sorted({str(sample.id) for sample in samples})
    arguments = {"agent": agent} if agent else {}
    return EvalSpec(
        created=_time(min(member.trace.start_time for member in members)),
        task=env_id,
        task_id=_slug(f"{env_id} {agent}"),
        task_args=arguments,
        task_args_passed=arguments,
        run_id=members[0].score.labels.get("run", ""),
        eval_id=members[0].trace.episode_id,
        dataset=EvalDataset(name=env_id, samples=len(ids), sample_ids=ids),
        model=next((name for sample in samples for name in sample.model_usage), NO_MODEL),
        model_args=_parameters(members),
        config=EvalConfig(epochs=max(sample.epoch for sample in samples)),
        solver=agent or None,
        packages={"railgym": version("railgym")},
    )


def _parameters(members: Sequence[Scored]) -> dict[str, Any]:
    """The parameters of the model, as the first call that names some claims."""
    claims = (claim for member in members for claim in member.trace.claims)
    named = (found for claim in claims if isinstance(found := claim.get("parameters"), dict))
    parameters, _ = _arguments(canonical_json(next(named, {})))
    return parameters


def _samples(members: Sequence[Scored]) -> list[inspect_log.EvalSample]:
    """The samples; tries at one task are its epochs, in the order of the log."""
    tries: Counter[str] = Counter()
    samples = []
    for member in members:
        name = member.trace.task_id or member.trace.episode_id
        tries[name] += 1
        samples.append(_sample(member, name, tries[name]))
    return samples


def _sample(episode: Scored, name: str, epoch: int) -> inspect_log.EvalSample:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ModelOutput

    score, trace = episode
    error = None
    if not score.valid:
        why = f"not valid: {score.invalid_reason} {score.detail}".strip()
        error = EvalError(message=why, traceback=why, traceback_ansi=why)
    seconds = max(0.0, (_end(episode) - trace.start_time) / 1e9)
    model = _model(score.models[0]) if score.models else NO_MODEL
    return EvalSample(
        id=name,
        epoch=epoch,
        uuid=trace.episode_id,
        input=task_text(trace),
        target="" if trace.reference is None else _text(trace.reference),
        messages=_messages(messages(trace)),
        output=ModelOutput.from_content(model, trace.answer or ""),
        scores={SCORER: _score(episode)} if score.valid and score.success is not None else None,
        metadata=_metadata(episode),
        model_usage={_model(used): _usage(used) for used in score.models},
        started_at=_time(trace.start_time),
        completed_at=_time(_end(episode)),
        total_time=seconds,
        error=error,
    )


def _messages(said: Iterable[Message]) -> list[inspect_model.ChatMessage]:
    from inspect_ai.model import ChatMessageSystem, ChatMessageTool, ChatMessageUser

    converted: list[inspect_model.ChatMessage] = []
    called: dict[str, str] = {}
    for message in said:
        text = message.get("content", "")
        match message["role"]:
            case "system":
                converted.append(ChatMessageSystem(content=text))
            case "user":
                converted.append(ChatMessageUser(content=text))
            case "tool":
                call = message["tool_call_id"]
                converted.append(
                    ChatMessageTool(content=text, tool_call_id=call, function=called[call])
                )
            case _:
                calls = [_call(call) for call in message.get("tool_calls", [])]
                called.update({call.id: call.function for call in calls})
                converted.append(_assistant(text, calls))
    return converted


def _assistant(text: str, calls: list[inspect_tool.ToolCall]) -> inspect_model.ChatMessage:
    from inspect_ai.model import ChatMessageAssistant

    return ChatMessageAssistant(content=text, tool_calls=calls or None, source="generate")


def _call(call: Message) -> inspect_tool.ToolCall:
    from inspect_ai.tool import ToolCall

    name, text = call["function"]["name"], call["function"]["arguments"]
    arguments, problem = _arguments(text)
    return ToolCall(id=call["id"], function=name, arguments=arguments, parse_error=problem)


def _arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """Arguments as Inspect has them, and what is wrong with those that it cannot hold."""
    try:
        arguments = parse_object(text)
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (BadJson, BrokenJson, UnicodeEncodeError) as e:
        return {}, f"{e}: {text}"
    return arguments, None


def _score(episode: Scored) -> inspect_scorer.Score:
    from inspect_ai.scorer import CORRECT, INCORRECT, Score

    score = episode.score
    held = score.verdict or {}
    verdict = ", ".join(f"{name}: {'yes' if ok else 'no'}" for name, ok in held.items())
    return Score(
        value=CORRECT if score.success else INCORRECT,
        answer=episode.trace.answer,
        explanation=verdict or "the end was not judged",
        metadata={"first_fault": score.first_fault, "metrics": score.metrics},
    )


def _results(members: Sequence[Scored]) -> inspect_log.EvalResults:
    """Success over all levels, and over each: "accuracy L1" and so on."""
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    judged = [(score.level, score.success) for score, _ in members if score.success is not None]
    metrics: dict[str, float | None] = {}
    for level in ("", *sorted({level for level, _ in judged})):
        some = [success for own, success in judged if level in ("", own)]
        estimate = proportion(sum(some), len(some))
        found = {"accuracy": estimate.mean, "stderr": estimate.standard_error}
        metrics |= {f"{name} {level}".strip(): value for name, value in found.items()}
    scored = EvalScore(
        name=SCORER,
        scorer=SCORER,
        scored_samples=len(judged),
        unscored_samples=len(members) - len(judged),
        metrics={
            name: EvalMetric(name=name, value=value)
            for name, value in metrics.items()
            if value is not None
        },
    )
    return EvalResults(total_samples=len(members), completed_samples=len(judged), scores=[scored])


def _metadata(episode: Scored) -> dict[str, Any]:
    score, trace = episode
    changed = {step.number: step.changes for step in trace.steps if step.changes}
    return {
        "episode_id": trace.episode_id,
        "level": score.level,
        "labels": score.labels,
        "end": score.end_reason,
        "replay": str(score.outcome),
        "faults": {str(step.number): step.fault for step in trace.steps if step.fault},
        "state_changes": {
            str(number): [change._asdict() for change in changes]
            for number, changes in changed.items()
        },
        "claims": [canonical_json(claim) for claim in trace.claims],
    }


def _model(used: ModelUsage) -> str:
    return f"{used.provider or 'unknown'}/{used.model or 'unknown'}"


def _usage(used: ModelUsage) -> inspect_model.ModelUsage:
    from inspect_ai.model import ModelUsage as Usage

    written = used.cache_write_5m + used.cache_write_1h
    return Usage(
        input_tokens=used.input,
        output_tokens=used.output,
        total_tokens=used.input + used.cache_read + written + used.output,
        input_tokens_cache_write=written,
        input_tokens_cache_read=used.cache_read,
        reasoning_tokens=used.reasoning,
    )


def _end(episode: Scored) -> int:
    """When the last step was taken, in nanoseconds since 1970."""
    steps = episode.trace.steps
    return steps[-1].time if steps else episode.trace.start_time


def _time(nanos: int) -> str:
    return datetime.fromtimestamp(nanos / 1e9, UTC).isoformat()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def _slug(text: str) -> str:
    """Text from a log as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[:60] or "none"
