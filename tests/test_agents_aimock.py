"""The model agents against a fake provider by other hands: npm's @copilotkit/aimock.

It runs where Node is, and where the package was installed with `npm ci`: in tests/providers/aimock,
or in the folder that RAILGYM_AIMOCK names, with a copy of the two files that are there.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers.played import FastTime, played

import railgym
from env_server.gold import play_gold
from env_server.registry import Registry
from env_server.tasks import Task
from railgym.actions import Final, ToolCall
from railgym.agents import models
from railgym.agents.retry import RetryPolicy
from railgym.agents.turns import ModelAgent

HERE = Path(__file__).parent / "providers" / "aimock"
PACKAGE = Path(os.environ.get("RAILGYM_AIMOCK", HERE)) / "node_modules" / "@copilotkit" / "aimock"
NODE = shutil.which("node")
TASKS = [f"multiverse_math/reference/{number:02}" for number in (1, 10, 20)]
AGENTS = ("anthropic", "openai", "chat", "json")
USAGE = {"prompt_tokens": 900, "completion_tokens": 30, "input_tokens": 900, "output_tokens": 30}
CHAOS = ["drop", "malformed", "disconnect", "ratelimit"]

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="there is no node on the PATH"),
    pytest.mark.skipif(not PACKAGE.is_dir(), reason=f"`npm ci` was not run: no {PACKAGE}"),
]


def fixtures(task: Task, registry: Registry) -> Iterator[dict[str, Any]]:
    """What aimock answers in each turn of a task, as a model of the task's name and kind."""
    for turn, action in enumerate(play_gold(task, registry)[0].actions):
        match = {"model": model("tools", task.task_id), "turnIndex": turn}
        said: dict[str, Any]
        if isinstance(action, ToolCall):
            said = {"toolCalls": [{"name": action.name, "arguments": action.arguments_json}]}
            words = {"action": action.name, "action_input": json.loads(action.arguments_json)}
        else:
            assert isinstance(action, Final)
            said = {"content": action.answer}
            words = {"action": "final", "action_input": action.answer}
        yield {"match": match, "response": {**said, "usage": USAGE}}
        match = {"model": model("json", task.task_id), "turnIndex": turn}
        yield {"match": match, "response": {"content": json.dumps(words), "usage": USAGE}}


def model(kind: str, task_id: str) -> str:
    return f"{kind}-{task_id.replace('/', '-')}"


@pytest.fixture(params=[0, 0.05], ids=["calm", "chaos"])
def url(request: pytest.FixtureRequest, registry: Registry, tmp_path: Path) -> Iterator[str]:
    told = [f for task_id in TASKS for f in fixtures(registry.task(task_id), registry)]
    path = tmp_path / "fixtures.json"
    path.write_text(json.dumps({"fixtures": told}))
    chaos = [word for kind in CHAOS for word in (f"--chaos-{kind}", str(request.param))]
    command = [NODE, str(PACKAGE / "dist" / "cli.js"), "--port", "0", "--fixtures", str(path)]
    aimock = subprocess.Popen(
        [*command, "--strict", *(chaos if request.param else [])],
        env={**os.environ, "AIMOCK_STRICT_TURN_INDEX": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with aimock:
        yield listening(aimock)
        aimock.terminate()


def listening(aimock: subprocess.Popen[str]) -> str:
    lines = []
    for line in aimock.stdout:
        lines.append(line)
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1]
    raise AssertionError("".join(lines))


def test_every_agent_plays_the_gold(
    url: str, server: Any, registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    with railgym.connect(server.address) as client:
        for name in AGENTS:
            kind, base = "json" if name == "json" else "tools", url
            if name != "anthropic":
                base += "/v1"
            for task_id in TASKS:
                time = FastTime()
                found = models.find(f"{name}:{model(kind, task_id)}?base_url={base}")
                retry = RetryPolicy(clock=time, sleep=time.sleep)
                agent = ModelAgent(found.provider, retry=retry)
                episode = played(client, agent, None, task_id)
                turns = len(registry.task(task_id).gold)
                assert (name, episode.last.reward) == (name, 1.0)
                assert len(episode.claims) == turns
                usages = [claim["usage"] for claim in episode.claims]
                assert {(u["input"], u["output"]) for u in usages} == {(900, 30)}
