"""An episode as a chat: messages and tools in the form of Chat Completions.

What a model said beside its calls, and what it thought, is not in a log and so not in here. The
system message is ours, where the claims say that it was ours that the model had; the text of
another prompt is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from env_server.scoring.trace import Step, Trace
from railgym.agents import prompts

Message = dict[str, Any]


def is_conversation(trace: Trace) -> bool:
    """Whether an episode can be told as a chat: one with plain values for actions cannot."""
    return bool(trace.tools) and all(step.kind != "value" for step in trace.steps)


def tools(trace: Trace) -> list[dict[str, Any]]:
    """The tools that there were, as function definitions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in trace.tools
    ]


def messages(trace: Trace) -> list[Message]:
    """What was said, from the task to the end."""
    system = system_prompt(trace)
    said: list[Message] = [{"role": "system", "content": system}] if system else []
    said.append({"role": "user", "content": task_text(trace)})
    for turn in trace.turns:
        for is_call, steps in groupby(turn, lambda step: step.kind == "tool_call"):
            same = list(steps)
            said += _calls(same) if is_call else _words(same)
    if said[-1]["role"] == "user" and len(said) > 2:
        said.pop()  # nobody answered it
    return said


def system_prompt(trace: Trace) -> str:
    """Our prompt, where the claims say that the model had it; empty where not."""
    for claim in trace.claims:
        prompt = prompts.for_api(str(claim.get("api", "")))
        if claim.get("prompt_sha256") == prompts.sha256(prompt):
            return prompts.fill(prompt, trace.tools)
    return ""


def task_text(trace: Trace) -> str:
    """The first words of the user: the task, and what the environment showed at the start."""
    return "\n\n".join(filter(None, (trace.instruction, trace.observation)))


def call_id(step: Step) -> str:
    """Names a call within its episode."""
    return f"call_{step.number}"


def _calls(steps: Sequence[Step]) -> list[Message]:
    calls = [
        {
            "id": call_id(step),
            "type": "function",
            "function": {"name": step.tool, "arguments": step.arguments},
        }
        for step in steps
    ]
    results = [
        {"role": "tool", "tool_call_id": call_id(step), "content": step.observation}
        for step in steps
    ]
    return [{"role": "assistant", "tool_calls": calls}, *results]


def _words(steps: Sequence[Step]) -> Iterator[Message]:
    """What was said without a call, and the environment's words after it; none after an answer."""
    for step in steps:
        yield {"role": "assistant", "content": step.text}
        if step.kind != "final":
            yield {"role": "user", "content": step.observation}
