"""What we tell every model before its task. The same words for every environment.

A prompt of one's own may stand in its place; `$tools` in it is where the tools are listed, for
models that are told of them in words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from railgym.spaces import ToolSpec

_PLACE = "$tools"

TOOLS = """\
You work on one task in an environment that you can reach only through your tools. What stands \
below the task is what you see of it at the start.

Every call returns JSON: {"result": ...} where it was done, {"error": {"code": ..., "message": \
...}} where it was not, and then nothing has changed. Read each result before you build on it: \
take ids, names and numbers from results and from the task, and never make one up. What a tool \
can compute or look up is for the tool, even where you believe that you know it; tools may work \
otherwise than their names suggest.

There are only so many steps: make no call that does not bring you nearer to the goal.

When the goal is reached, or you have found that it cannot be reached, answer in words and without \
a call. That ends the task, and nothing can be added afterwards. Say in that answer exactly what \
was asked for, as briefly as you can; where nothing was asked, say that it is done."""

JSON = """\
You work on one task in an environment that you can reach only through its tools. You use them by \
writing: each of your messages must be exactly one JSON object, and nothing before or after it.

To use a tool:
{"thought": "why", "action": "NAME OF THE TOOL", "action_input": {"NAME OF AN ARGUMENT": "VALUE"}}

To end the task:
{"thought": "why", "action": "final", "action_input": "YOUR ANSWER"}

These are the tools, each with the JSON Schema of its arguments:

$tools

The reply to a tool is JSON: {"result": ...} where it was done, {"error": {"code": ..., "message": \
...}} where it was not, and then nothing has changed. Read each reply before you build on it: take \
ids, names and numbers from replies and from the task, and never make one up. What a tool can \
compute or look up is for the tool, even where you believe that you know it; tools may work \
otherwise than their names suggest.

There are only so many steps: use no tool that does not bring you nearer to the goal.

When the goal is reached, or you have found that it cannot be reached, end the task. Nothing can \
be added afterwards. Say in your answer exactly what was asked for, as briefly as you can; where \
nothing was asked, say that it is done."""


def for_api(api: str) -> str:
    """Our prompt for models of an API; those of "json" write their calls as words."""
    return JSON if api == "json" else TOOLS


def fill(prompt: str, tools: Sequence[ToolSpec]) -> str:
    """Lists the tools where the prompt has a place for them."""
    listed = (
        f"{tool.name}: {tool.description}\n{json.dumps(tool.parameters, ensure_ascii=False)}"
        for tool in tools
    )
    return prompt.replace(_PLACE, "\n\n".join(listed))


def sha256(prompt: str) -> str:
    """Digest of a prompt, before the tools are listed in it (hexadecimal)."""
    return hashlib.sha256(prompt.encode()).hexdigest()
