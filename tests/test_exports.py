"""Exports in the formats of others, each read back by that format's own schema or loader."""

import functools
import http.server
import io
import json
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
from browsing import chromium
from playing import Play, letters, make_task, write_log
from pydantic import TypeAdapter
from typer.testing import CliRunner

from env_server.cli.app import app
from env_server.export.atif import trajectory, write_trajectories
from env_server.export.chat import row, write_rows
from env_server.export.conversation import system_prompt
from env_server.export.selection import scored
from env_server.registry import Registry
from env_server.tasks import read_tasks
from railgym import Final, NoAction, Text, ToolCall
from railgym.agents import prompts

LONE = r'{"letter": "\ud800"}'
BIG = '{"letter": 9007199254740993}'
BROKEN = '{"letter": "d"'
USAGE = {"input": 10, "cache_read": 9000, "cache_write_5m": 1000, "cache_write_1h": 0}
CLAIM = {
    "kind": "model_call",
    "turn": 1,
    "provider": "anthropic",
    "api": "messages",
    "model": "claude-haiku-4-5",
    "answered_by": "claude-haiku-4-5-20251001",
    "prompt_sha256": prompts.sha256(prompts.TOOLS),
    "usage": {**USAGE, "output": 50, "reasoning": 20},
    "latency_ms": 812.0,
    "queue_ms": 7000.0,
    "retries": [{"status": 429}],
    "error": None,
}
SAYS = json.dumps({"action": "type_letter", "action_input": {"letter": "d"}})
FINAL = json.dumps({"action": "final", "action_input": ""})


def make_registry():
    task = make_task(task_id="test/export", instruction='Type "dog" \u2028 <b>.')
    return Registry({task.task_id: task, **Registry().tasks})


REGISTRY = make_registry()
DOG = REGISTRY.task("test/export")


def play(actions, agent, **more):
    return Play(DOG, actions, {"agent": agent, "run": "r"}, **more)


PLAYS = [
    play(letters("dog"), "good", turns=[1, 1, 2, 2], claims=[CLAIM, {**CLAIM, "turn": 2}]),
    play([Text(SAYS), Text(SAYS.replace('"d"', '"o"')), Text("?"), Text(FINAL)], "words"),
    play(letters("cat"), "bad"),
    play([ToolCall("type_letter", text) for text in (LONE, BIG, BROKEN)] + [Final("no")], "odd"),
    play([NoAction("empty_response", ""), NoAction("refusal", "I will not.")], "refuser"),
    play(letters("d", None), "cut", end="api_error"),
]
AGENTS = [p.labels["agent"] for p in PLAYS]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("exports") / "log"
    write_log(path, PLAYS, REGISTRY)
    return path


@pytest.fixture(scope="module")
def episodes(log):
    found = list(scored(log, REGISTRY, "all"))
    assert [episode.score.agent for episode in found] == AGENTS
    return dict(zip(AGENTS, found, strict=True))


# -------------------------------------------------------------------- Which episodes


@pytest.mark.parametrize(
    ("keep", "agents"),
    [("successful", AGENTS[:1]), ("valid", AGENTS[:5]), ("all", AGENTS)],
)
def test_only_what_is_asked_for_is_exported(log, keep, agents):
    assert [episode.score.agent for episode in scored(log, REGISTRY, keep)] == agents


def test_an_attempt_that_a_later_one_superseded_is_not_exported(tmp_path):
    labels = {"agent": "a", "run": "r", "trial": "1", "key": "k"}
    tries = [
        Play(DOG, letters("d", None), labels, end="api_error"),
        Play(DOG, letters("dog"), labels),
    ]
    _, second = write_log(tmp_path, tries, REGISTRY)
    assert [e.score.episode_id for e in scored(tmp_path, REGISTRY, "all")] == [second]


def test_of_a_runs_folder_what_was_asked_for_last_is_exported_as_it_is_scored(tmp_path):
    labels = [{"agent": a, "run": "r", "trial": "1", "key": a} for a in ("before", "now")]
    plays = [Play(task_of_ours(), letters("dog"), label) for label in labels]
    first, last = write_log(tmp_path / "log", plays, Registry())
    (tmp_path / "config.json").write_text('{"keys": ["now"]}')
    found = {}
    for name, path in (("run", tmp_path), ("log", tmp_path / "log")):
        rows = CliRunner().invoke(app, ["log", "export", str(path), "--format", "chat"])
        scores = CliRunner().invoke(app, ["score", str(path), "--json"])
        found[name] = [json.loads(line)["episode_id"] for line in rows.stdout.splitlines()]
        assert found[name] == [e["episode_id"] for e in json.loads(scores.stdout)["episodes"]]
    assert found == {"run": [last], "log": [first, last]}


def task_of_ours():
    return Registry().task("typewriter/reference/dog")


# -------------------------------------------------------------------- Chat


def test_every_chat_row_is_one_that_the_openai_sdk_takes(episodes):
    chat = pytest.importorskip("openai.types.chat", reason="the extra openai is not installed")
    said = TypeAdapter(list[chat.ChatCompletionMessageParam])
    tools = TypeAdapter(list[chat.ChatCompletionFunctionToolParam])
    for episode in episodes.values():
        line = json.loads(json.dumps(row(episode)))
        assert set(line) == {"episode_id", "task_id", "agent", "messages", "tools"}
        assert (line["task_id"], line["agent"]) == (DOG.task_id, episode.score.agent)
        said.validate_python(line["messages"])
        tools.validate_python(line["tools"])


def test_every_call_of_a_chat_row_is_answered_in_the_next_messages(episodes):
    for episode in episodes.values():
        waiting = []
        for message in row(episode)["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] == waiting.pop(0)
            else:
                assert waiting == []
            waiting += [call["id"] for call in message.get("tool_calls", [])]
        assert waiting == []


def test_a_turn_is_one_message_with_its_calls_and_the_models_own_text(episodes):
    messages = row(episodes["good"])["messages"]
    assert [m["role"] for m in messages] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant"),
    ]
    assert messages[0]["content"] == prompts.TOOLS
    assert messages[1]["content"].startswith(DOG.instruction)
    calls = [call["function"] for call in messages[2]["tool_calls"]]
    assert calls == [{"name": "type_letter", "arguments": f'{{"letter": "{x}"}}'} for x in "do"]
    odd = row(episodes["odd"])["messages"]
    written = [c["function"]["arguments"] for m in odd for c in m.get("tool_calls", [])]
    assert written == [LONE, BIG, BROKEN]


def test_words_and_refusals_are_messages_without_calls(episodes):
    words = row(episodes["words"])["messages"]
    assert [m["role"] for m in words] == ["user", *("assistant", "user") * 3, "assistant"]
    assert words[1]["content"] == SAYS
    refuser = row(episodes["refuser"])["messages"]
    assert [m["content"] for m in refuser if m["role"] == "assistant"] == ["", "I will not."]
    assert refuser[-1]["role"] == "assistant"


def test_a_prompt_that_is_not_ours_is_not_made_up(episodes):
    trace = episodes["good"].trace
    other = [{**CLAIM, "prompt_sha256": "0" * 64}]
    assert system_prompt(trace) == prompts.TOOLS
    assert system_prompt(trace._replace(claims=other)) == ""
    json_claim = [{**CLAIM, "api": "json", "prompt_sha256": prompts.sha256(prompts.JSON)}]
    assert "type_letter" in system_prompt(trace._replace(claims=json_claim))


def test_an_episode_of_plain_values_is_no_chat(tmp_path, registry):
    import numpy as np

    from railgym import Plain

    moves = [Plain(np.int64(1))] * 3
    write_log(tmp_path, [Play(None, moves, env_id="CartPole-v1", end="client_closed")], registry)
    out = io.StringIO()
    assert write_rows(scored(tmp_path, registry, "all"), out) == 0
    assert out.getvalue() == ""


# -------------------------------------------------------------------- ATIF


def test_every_trajectory_is_one_by_the_schema_of_atif(log, tmp_path):
    atif = pytest.importorskip("atif", reason="the package atif is not installed")
    assert write_trajectories(scored(log, REGISTRY, "all"), tmp_path) == len(PLAYS)
    files = sorted(tmp_path.iterdir())
    found = [atif.Trajectory.model_validate_json(path.read_bytes()) for path in files]
    assert [trajectory.agent.name for trajectory in found] == AGENTS
    good = found[0]
    assert good.agent.model_name == "claude-haiku-4-5-20251001"
    assert [step.source for step in good.steps] == ["system", "user", "agent", "agent"]
    assert [len(step.tool_calls) for step in good.steps[2:]] == [2, 1]
    metrics = good.steps[2].metrics
    assert (metrics.prompt_tokens, metrics.cached_tokens) == (10010, 9000)
    assert (metrics.completion_tokens, metrics.extra["reasoning_tokens"]) == (50, 20)
    assert good.final_metrics.total_prompt_tokens == 20020
    assert good.final_metrics.total_cost_usd == pytest.approx(2 * 2410e-6)  # see prices.toml
    assert good.extra["score"]["success"] is True
    changed = [r.extra["state_changes"] for r in good.steps[2].observation.results]
    assert [change[0]["path"] for change in changed] == ["paper", "paper"]


def test_arguments_that_atif_cannot_hold_stand_beside_as_text(episodes):
    document = trajectory(*episodes["odd"])
    calls = [call for step in document["steps"] for call in step.get("tool_calls", [])]
    assert [call["arguments"] for call in calls] == [{}, {"letter": 9007199254740993}, {}]
    assert [call.get("extra") for call in calls] == [
        {"arguments_json": LONE},
        None,
        {"arguments_json": BROKEN},
    ]


def test_an_id_from_a_log_leads_no_file_out_of_the_folder(episodes, tmp_path):
    score, trace = episodes["good"]
    evil = trace._replace(episode_id="../../etc/passwd.1")
    assert write_trajectories([(score, evil)], tmp_path / "out") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == [
        "000001-.._.._etc_passwd.1.json"
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# -------------------------------------------------------------------- Inspect


@pytest.fixture(scope="module")
def inspect_folder(log, tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, at import
        pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")
    from env_server.export.inspect_log import write_logs

    folder = tmp_path_factory.mktemp("inspect") / "logs"
    assert len(write_logs(scored(log, REGISTRY, "all"), folder)) == len(AGENTS)
    return folder


def test_inspect_reads_our_logs_as_its_own(inspect_folder):
    from inspect_ai.log import list_eval_logs, read_eval_log

    logs = {log.eval.solver: log for log in map(read_eval_log, list_eval_logs(str(inspect_folder)))}
    assert set(logs) == set(AGENTS)
    good = logs["good"]
    assert good.status == "success"
    metrics = {name: metric.value for name, metric in good.results.scores[0].metrics.items()}
    assert metrics == {"accuracy": 1, "stderr": 0, "accuracy L2": 1, "stderr L2": 0}
    assert good.eval.model == "anthropic/claude-haiku-4-5-20251001"
    usage = good.stats.model_usage[good.eval.model]
    assert (usage.input_tokens, usage.input_tokens_cache_read) == (20, 18000)
    assert (usage.input_tokens_cache_write, usage.output_tokens) == (2000, 100)
    sample = good.samples[0]
    assert sample.scores["railgym"].value == "C"
    assert [m.role for m in sample.messages][:3] == ["system", "user", "assistant"]
    assert [len(m.tool_calls or []) for m in sample.messages if m.role == "assistant"] == [2, 1, 0]
    assert logs["bad"].samples[0].scores["railgym"].value == "I"
    cut = logs["cut"].samples[0]
    assert cut.scores is None
    assert "api_error" in cut.error.message
    assert logs["cut"].results.scores[0].metrics == {}
    broken = logs["odd"].samples[0].messages[1].tool_calls[0]
    assert broken.arguments == {}
    assert LONE in broken.parse_error


def test_two_agents_of_one_model_differ_in_inspects_list(tmp_path):
    pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")
    from inspect_ai.log import list_eval_logs, read_eval_log

    from env_server.export.inspect_log import write_logs

    parameters = {"low": {"effort": "low"}, "high": {"effort": "high"}, "odd": {"effort": "\ud800"}}
    plays = [
        play(letters("dog"), agent, claims=[CLAIM, {**CLAIM, "parameters": given}])
        for agent, given in parameters.items()
    ]
    write_log(tmp_path / "log", plays, REGISTRY)
    write_logs(scored(tmp_path / "log", REGISTRY, "all"), tmp_path / "inspect")
    found = {}
    for header in list_eval_logs(str(tmp_path / "inspect")):
        spec = read_eval_log(header, header_only=True).eval
        assert spec.task_args == spec.task_args_passed
        found[spec.task_args["agent"]] = spec.model_args
    assert found == {**parameters, "odd": {}}


def test_inspect_view_bundles_our_logs_and_its_viewer_opens_them(inspect_folder, tmp_path):
    command = Path(sys.executable).with_name("inspect")
    words = ["view", "bundle", "--log-dir", inspect_folder, "--output-dir", tmp_path / "bundle"]
    subprocess.run([command, *words], check=True, timeout=110, capture_output=True)
    assert (tmp_path / "bundle" / "index.html").is_file()
    bundled = {path.name for path in (tmp_path / "bundle" / "logs").glob("*.eval")}
    assert bundled == {path.name for path in inspect_folder.glob("*.eval")}
    with chromium() as browser, _serving(tmp_path / "bundle") as address:
        page = browser.new_page()
        page.goto(address)
        page.get_by_text("claude-haiku-4-5-20251001").first.click(timeout=30_000)
        page.get_by_text("test/export").first.wait_for(timeout=30_000)
        page.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def _serving(folder):
    """Serves a folder on a free loopback port."""
    handler = functools.partial(_Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


# -------------------------------------------------------------------- The command


@pytest.fixture
def export(log, tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(DOG.model_dump_json(exclude_defaults=True) + "\n")
    assert list(read_tasks([tasks])) == [DOG.task_id]

    def run(*words):
        words = ["log", "export", str(log), "--tasks", str(tasks), *map(str, words)]
        return CliRunner().invoke(app, words)

    return run


def test_the_command_writes_chat_rows_of_successes_unless_told_otherwise(export, tmp_path):
    assert export("--format", "chat", "-o", tmp_path / "rows.jsonl").exit_code == 0
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1
    more = export("--format", "chat", "--keep", "valid")
    assert len([line for line in more.stdout.splitlines() if line.startswith("{")]) == 5


@pytest.mark.parametrize("form", ["jsonl", "parquet", "chat", "atif", "inspect"])
def test_the_command_makes_the_folder_that_it_writes_into(export, tmp_path, form):
    if form == "inspect":
        pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")
    target = tmp_path / "new" / "one" / "x"
    result = export("--format", form, "-o", target)
    assert result.exit_code == 0, result.output
    assert target.is_dir() if form in ("atif", "inspect") else target.stat().st_size > 0


@pytest.mark.parametrize("turn", [[1], {"a": 1}, None, 0, "1"])
def test_a_claim_whose_turn_is_no_number_of_one_is_nobodys(episodes, turn):
    score, trace = episodes["bad"]
    document = trajectory(score, trace._replace(claims=[{**CLAIM, "turn": turn}]))
    assert not [step for step in document["steps"] if "metrics" in step]
    assert json.loads(document["extra"]["claims"][0])["turn"] == turn


@pytest.mark.parametrize("form", ["atif", "inspect"])
def test_the_command_wants_a_folder_where_a_format_has_many_files(export, form):
    result = export("--format", form)
    assert result.exit_code == 2
    assert f"expected -o FOLDER for {form}" in result.stderr


def test_the_command_writes_trajectories_into_a_folder(export, tmp_path):
    assert export("--format", "atif", "-o", tmp_path / "atif").exit_code == 0
    assert len(list((tmp_path / "atif").iterdir())) == len(PLAYS)


def test_a_log_is_listed_as_text(tmp_path):
    write_log(tmp_path, [Play(DOG, letters("dog"), {"agent": "a\nforged\x1b[31m\u202e"})], REGISTRY)
    listed = CliRunner().invoke(app, ["log", "list", str(tmp_path)]).stdout
    assert len(listed.splitlines()) == 2
    assert r"a\nforged\x1b[31m\u202e" in listed
