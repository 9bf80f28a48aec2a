"""ATIF 1.7: the trajectory format of Harbor, one JSON file for each episode.

An ATIF step is a turn: a message, its calls, what came of them, and what the model used. What has
no place in the format (score, faults, state changes, claims as they are) stands under `extra`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from env_server.arguments import BadJson, BrokenJson, canonical_json, parse_object
from env_server.export.conversation import call_id, system_prompt, task_text, tools
from env_server.export.selection import Scored
from env_server.scoring.claims import Call, read_call
from env_server.scoring.score import EpisodeScore
from env_server.scoring.trace import Step, Trace
from railgym.scores import ModelUsage

VERSION = "ATIF-v1.7"
UNKNOWN = "unknown"
"""The version of an agent: nobody says it."""


def trajectory(score: EpisodeScore, trace: Trace) -> dict[str, Any]:
    """An episode as an ATIF document."""
    calls = {call.turn: call for claim in trace.claims if (call := read_call(claim)) and call.turn}
    spoken = [("system", system_prompt(trace)), ("user", task_text(trace))]
    steps = [{"source": source, "message": text} for source, text in spoken if text]
    steps += [_turn(turn, calls.get(turn[0].turn)) for turn in trace.turns]
    return {
        "schema_version": VERSION,
        "session_id": trace.episode_id.rpartition(".")[0],
        "trajectory_id": trace.episode_id,
        "agent": _agent(trace),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": _final_metrics(score, len(steps)),
        "extra": {
            "score": score.to_json(),
            "env_version": trace.env_version,
            "claims": [canonical_json(claim) for claim in trace.claims],
        },
    }


def write_trajectories(episodes: Iterable[Scored], folder: Path) -> int:
    """Writes NUMBER-EPISODE_ID.json into a folder for each episode; returns how many.

    Raises:
        OSError: The folder or a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for count, (score, trace) in enumerate(episodes, start=1):
        # An id is text from a log: it must not lead out of the folder.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", trace.episode_id)[:100]
        text = json.dumps(trajectory(score, trace), indent=1, allow_nan=False)
        (folder / f"{count:06}-{name}.json").write_text(text + "\n", encoding="ascii")
    return count


def _agent(trace: Trace) -> dict[str, Any]:
    agent: dict[str, Any] = {"name": trace.labels.get("agent") or UNKNOWN, "version": UNKNOWN}
    models = [call.usage.model for claim in trace.claims if (call := read_call(claim))]
    if models and models[0]:
        agent["model_name"] = models[0]
    if trace.tools:
        agent["tool_definitions"] = tools(trace)
    return agent


def _turn(steps: Sequence[Step], call: Call | None) -> dict[str, Any]:
    calls = [step for step in steps if step.kind == "tool_call"]
    turn: dict[str, Any] = {
        "timestamp": datetime.fromtimestamp(steps[0].time / 1e9, UTC).isoformat(),
        "source": "agent",
        "message": "\n".join(step.text for step in steps if step.text),
        "observation": {"results": [_result(step) for step in steps]},
    }
    if calls:
        turn["tool_calls"] = [_call(step) for step in calls]
    if call is not None:
        turn |= {"metrics": _metrics(call), "llm_call_count": 1}
        if call.usage.model:
            turn["model_name"] = call.usage.model
    return turn


def _call(step: Step) -> dict[str, Any]:
    """A call; arguments that are no JSON object stand beside it as the text that they were."""
    call = {"tool_call_id": call_id(step), "function_name": step.tool}
    try:
        arguments = parse_object(step.arguments)
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (BadJson, BrokenJson, UnicodeEncodeError):
        return {**call, "arguments": {}, "extra": {"arguments_json": step.arguments}}
    return {**call, "arguments": arguments}


def _result(step: Step) -> dict[str, Any]:
    result: dict[str, Any] = {"content": step.observation}
    if step.kind == "tool_call":
        result["source_call_id"] = call_id(step)
    extra = {
        "step": step.number,
        "reward": step.reward,
        "fault": step.fault,
        "repaired": step.repaired,
        "state_changes": [change._asdict() for change in step.changes],
    }
    return {**result, "extra": {name: value for name, value in extra.items() if value != ""}}


def _metrics(call: Call) -> dict[str, Any]:
    used = call.usage
    extra = {"latency_ms": call.latency_ms, "queue_ms": call.queue_ms, "retries": call.retries}
    if not call.said:
        return {"extra": extra}
    extra |= {
        "reasoning_tokens": used.reasoning,
        "cache_write_5m_tokens": used.cache_write_5m,
        "cache_write_1h_tokens": used.cache_write_1h,
    }
    return {
        "prompt_tokens": _prompt(used),
        "completion_tokens": used.output,
        "cached_tokens": used.cache_read,
        "extra": extra,
    }


def _prompt(used: ModelUsage) -> int:
    return used.input + used.cache_read + used.cache_write_5m + used.cache_write_1h


def _final_metrics(score: EpisodeScore, steps: int) -> dict[str, Any]:
    metrics = score.metrics
    final: dict[str, Any] = {"total_steps": steps}
    if "cost_usd" in metrics:
        final["total_cost_usd"] = metrics["cost_usd"]
    if "total_tokens" in metrics:
        output = metrics.get("tokens/output", 0)
        final |= {
            "total_prompt_tokens": int(metrics["total_tokens"] - output),
            "total_completion_tokens": int(output),
            "total_cached_tokens": int(metrics.get("tokens/cache_read", 0)),
        }
    return final
