"""`railgym run`: what is played, what is kept from before, what it costs, what it says of it."""

import asyncio
import importlib
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from playing import Play, letters, write_log
from providers import FakeProvider, gold
from rich.console import Console
from typer.testing import CliRunner

import railgym
from env_server.arguments import canonical_json
from env_server.cli.app import app
from env_server.cli.catalogue import envs_of, tasks_of
from env_server.cli.config import Config
from env_server.cli.connection import connected, own_server
from env_server.cli.exits import Exit, Failure
from env_server.cli.folder import Folder
from env_server.cli.keys import Keys, identity
from env_server.cli.live import Drawn, plain_lines, summary_line, usage
from env_server.cli.reuse import earlier_in
from env_server.cli.spending import Spending
from env_server.cli.tally import Tally
from env_server.cli.trials import Played, Pool, Target, Trial, plan
from env_server.log import episodes as logged_episodes
from env_server.registry import Registry
from env_server.scoring.prices import prices_with
from railgym.agents import ModelFailed, Move, RunStopped
from railgym.agents.throttle import Throttle

DOG = "typewriter/reference/dog"
A = "typewriter/reference/a"
CALL_USD = 1_000 * 10e-6 + 100 * 50e-6
"""What a call of `CLAIM` costs by the bundled prices of claude-fable-5."""

CLAIM = {
    "kind": "model_call",
    "turn": 1,
    "provider": "anthropic",
    "model": "claude-fable-5",
    "usage": {"input": 1_000, "cache_read": 0, "output": 100},
    "queue_ms": 0.0,
    "retries": [],
    "error": None,
}
RETRIES = [{"status": 429, "error": "rate_limit_error", "waited_ms": 7_000.0, "usage": None}]


class Claiming:
    """An agent that claims a model call, and whatever a test wants besides."""

    parameters: Any = None
    model = "claude-fable-5"
    error: BaseException | None = None
    fails_at: tuple = ()
    seconds = 0.0
    queue_ms = 0.0
    played = 0

    def describe(self):
        return {"provider": "anthropic", "model": self.model, "parameters": self.parameters}

    def __call__(self, briefing):
        self.played += 1
        failing = self.error if self.played in self.fails_at else None
        claim = CLAIM | {"model": self.model, "queue_ms": self.queue_ms}

        def policy(seen):
            time.sleep(self.seconds)
            if failing is not None:
                raise failing
            return Move(railgym.Final(""), 1, claim)

        return policy


claiming = Claiming()
other = Claiming()


def silent(briefing):
    return lambda seen: railgym.Final("")


@pytest.fixture(autouse=True)
def fresh_agents():
    for agent in (claiming, other):
        vars(agent).clear()


def invoke(*args):
    return CliRunner().invoke(app, ["run", *map(str, args)], prog_name="railgym")


def result_of(*args, code=Exit.OK):
    """Runs the command and returns its JSON."""
    result = invoke(*args, "--json")
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def plan_of(*args):
    """By agent and environment, what a run would do."""
    rows = result_of(*args, "--dry-run")["plan"]
    kinds = ("reused", "rescored", "rerun", "new")
    return {(r["agent"], r["env_id"]): tuple(r[kind] for kind in kinds) for r in rows}


def scores(folder):
    return json.loads((Path(folder) / "scores.json").read_text())


def failures(folder):
    lines = (Path(folder) / "failures.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def remote(server, tmp_path):
    """Options of a run on the tests' server, in a folder of the test's own."""
    return ("--address", server.address, "--out", tmp_path)


# What a key depends on


def dog_trial(registry, **changes):
    tasks = {task.task_id: task for task in tasks_of(registry)}
    return Trial("oracle", Target(tasks[DOG].env_id, tasks[DOG]), 1, 7)._replace(**changes)


def test_a_key_depends_on_all_that_a_result_depends_on_and_on_nothing_else():
    registry = Registry()
    trial, agent, options = dog_trial(registry), {"name": "x", "describe": {"t": 0}}, {"limit": 1}
    (env,) = [env for env in envs_of(registry) if env.env_id == trial.target.env_id]
    task = trial.target.task

    def key_of(trial=trial, agent=agent, env=env, options=options):
        return Keys({trial.agent: agent}, [env], options).key(trial)

    key = key_of()
    assert re.fullmatch("[0-9a-f]{32}", key)
    assert key_of(trial._replace(agent="any", key="any"), dict(agent), env, dict(options)) == key
    (tool,) = env.tools
    spoken = railgym.ToolSpace([tool._replace(description="Another description.")])
    others = [
        key_of(trial._replace(seed=8)),
        key_of(trial._replace(number=2)),
        key_of(trial._replace(tools=railgym.ToolShaping(3))),
        key_of(trial._replace(target=Target(env.env_id, task._replace(sha256="0" * 64)))),
        key_of(agent={"name": "x", "describe": {"t": 1}}),
        key_of(agent={"name": "y", "describe": {"t": 0}}),
        key_of(options={"limit": 2}),
        key_of(env=env._replace(env_version="railgym 0.0.0")),
        key_of(env=env._replace(action_space=spoken)),
    ]
    assert len({key, *others}) == 1 + len(others)


def test_an_agent_that_says_nothing_of_itself_is_known_by_the_text_of_its_module():
    said = identity("test_run:claiming", lambda task: claiming)
    assert said["describe"] == claiming.describe()
    unsaid = identity("test_run:silent", lambda task: silent)
    assert set(unsaid) == {"name", "module_sha256"}
    elsewhere = identity("test_run:silent", lambda task: railgym.agents.idle)
    assert elsewhere["module_sha256"] != unsaid["module_sha256"]
    assert identity("oracle", lambda task: silent) == {"name": "oracle"}


def test_a_key_depends_on_the_text_of_an_environment_of_ones_own(monkeypatch, tmp_path):
    source = tmp_path / "my_env_module.py"
    monkeypatch.syspath_prepend(tmp_path)
    keys = set()
    for letter in "ab":
        source.write_text(
            "from env_server.envs.typewriter import Typewriter\n"
            f"class Mine(Typewriter):\n    {letter} = 1\n"
        )
        registry = Registry()
        registry.add("my_env_module:Mine")
        env = next(env for env in envs_of(registry) if env.env_id == "my_env_module:Mine")
        trial = Trial("x", Target(env.env_id, None), 1, 7)
        keys.add(Keys({"x": {}}, [env], {}).key(trial))
    assert len(keys) == 2


def test_an_agent_made_of_parts_of_other_modules_is_known_by_its_own_module_too(
    monkeypatch, tmp_path
):
    source = tmp_path / "partial_agent.py"
    monkeypatch.syspath_prepend(tmp_path)
    seen = set()
    for answer in "ab":
        source.write_text(
            "from functools import partial\nimport railgym\n"
            f"def play(letter, briefing):\n    return lambda seen: railgym.Final({answer!r})\n"
            "agent = partial(play, 'x')\n"
        )
        agent = importlib.import_module("partial_agent").agent
        seen.add(canonical_json(identity("partial_agent:agent", lambda task: agent)))  # noqa: B023
    assert len(seen) == 2


def test_an_equal_request_has_an_equal_default_name_and_another_one_another():
    config = Config(None, ["anthropic:claude-x?temperature=0", "oracle"], tasks=[DOG])
    assert config.default_name == config._replace(concurrency=1, budget_usd=3.0).default_name
    assert re.fullmatch(r"anthropic-claude-x-oracle-[0-9a-f]{8}", config.default_name)
    changed = [
        config._replace(address="localhost:1"),
        config._replace(agents=["oracle"]),
        config._replace(tasks=[A]),
        config._replace(repeats=2),
        config._replace(limit=1),
        config._replace(seed=1),
        config._replace(time_limit=1.0),
        config._replace(distractors=1),
        config._replace(rename_tools=True),
    ]
    assert len({c.default_name for c in (config, *changed)}) == 1 + len(changed)


# The same again, and more


def test_the_same_command_again_plays_nothing_and_scores_the_same(tmp_path):
    args = ("--agent", "oracle", "--agent", "random", "--task", DOG, "--task", A, "--out", tmp_path)
    first = result_of(*args)
    folder = Path(first["folder"])
    log = {path: path.stat().st_size for path in (folder / "log").iterdir()}
    before = scores(folder)
    again = result_of(*args)
    assert (first["reused_trials"], again["reused_trials"], again["trials"]) == (0, 4, 4)
    assert again["folder"] == first["folder"]
    assert {path: path.stat().st_size for path in (folder / "log").iterdir()} == log
    assert scores(folder) == before
    assert len(before["episodes"]) == 4
    assert {path.name for path in folder.iterdir()} >= {
        "config.json",
        "log",
        "failures.jsonl",
        "scores.json",
        "episodes.jsonl",
        "report.html",
    }


def test_another_request_of_the_same_name_plays_only_what_is_new(remote):
    args = (*remote, "--name", "a", "--agent", "oracle")
    assert result_of(*args, "--task", DOG)["reused_trials"] == 0
    more_tries = result_of(*args, "--task", DOG, "--repeats", 3)
    assert (more_tries["reused_trials"], more_tries["trials"]) == (1, 3)
    more_tasks = result_of(*args, "--task", DOG, "--task", A, "--repeats", 3)
    assert (more_tasks["reused_trials"], more_tasks["trials"]) == (3, 6)
    more_agents = result_of(*args, "--task", DOG, "--task", A, "--agent", "idle", "--repeats", 2)
    assert (more_agents["reused_trials"], more_agents["trials"]) == (4, 8)
    # Scores are of what was asked for last, and each trial is there once.
    found = [
        (e["labels"]["agent"], e["task_id"], e["labels"]["trial"])
        for e in scores(more_agents["folder"])["episodes"]
    ]
    expected = [(agent, task, n) for n in "12" for task in (A, DOG) for agent in ("idle", "oracle")]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    "change",
    [("--seed", 1), ("--time-limit", 99), ("--distractors", 3), ("--rename-tools",)],
    ids=lambda c: c[0],
)
def test_another_seed_or_rule_reuses_nothing(remote, change):
    args = (*remote, "--name", "a", "--agent", "oracle", "--task", DOG)
    result_of(*args)
    (counts,) = plan_of(*args, *change).values()
    assert counts == (0, 0, 0, 1)
    assert result_of(*args, *change, "--fail-under", 1)["reused_trials"] == 0
    assert result_of(*args)["reused_trials"] == 1, "expected the first one to be there still"


def test_other_parameters_of_a_model_reuse_nothing(remote):
    args = (*remote, "--name", "a", "--agent", "test_run:claiming", "--task", DOG)
    result_of(*args)
    claiming.parameters = {"temperature": 1}
    again = result_of(*args)
    assert again["reused_trials"] == 0
    (episode,) = scores(again["folder"])["episodes"]
    assert episode["valid"]


@pytest.fixture
def model(registry, monkeypatch):
    """The name of a model that plays the gold actions, but for its parameters."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    with FakeProvider(gold(registry)) as provider:
        yield f"anthropic:claude-fable-5?base_url={provider.url}"


def test_a_model_agent_is_known_by_its_parameters_and_its_prompt(remote, model, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Solve it.")
    agent = f"{model}&temperature=0&prompt={prompt}"
    args = (*remote, "--name", "a", "--env", "MultiverseMath-v1", "--level", "L1", "--limit", 2)
    first = result_of(*args, "--agent", agent)
    assert (first["reused_trials"], first["trials"]) == (0, 2)
    episodes = scores(first["folder"])["episodes"]
    assert all(e["success"] for e in episodes)
    costs = [e["metrics"]["cost_usd"] for e in episodes]
    assert first["claimed"]["usd"] == pytest.approx(sum(costs))
    assert first["claimed"]["calls"] == sum(e["metrics"]["model_calls"] for e in episodes)
    assert result_of(*args, "--agent", agent)["reused_trials"] == 2
    prompt.write_text("Solve it, please.")
    assert result_of(*args, "--agent", agent, "--dry-run")["plan"][0]["new"] == 2
    assert result_of(*args, "--agent", f"{model}&temperature=1", "--dry-run")["plan"][0]["new"] == 2


def test_scores_are_of_what_was_asked_for_last_also_when_the_log_is_scored_again(tmp_path):
    args = ("--agent", "test_run:claiming", "--task", DOG, "--out", tmp_path, "--name", "a")
    ids = []
    for parameters in (None, {"temperature": 1}, None):
        claiming.parameters = parameters
        result_of(*args)
        (episode,) = scores(tmp_path / "a")["episodes"]
        scored = CliRunner().invoke(app, ["score", str(tmp_path / "a"), "--json"])
        assert json.loads(scored.stdout)["episodes"] == [episode]
        ids.append(episode["episode_id"])
    assert (ids[0] == ids[2], ids[0] == ids[1], claiming.played) == (True, False, 2)


def test_damage_to_the_log_is_told_by_a_run_that_goes_on(tmp_path):
    args = ("--agent", "oracle", "--task", DOG, "--repeats", 3, "--out", tmp_path, "--name", "a")
    result_of(*args)
    (segment,) = (tmp_path / "a" / "log").glob("*.rgl")
    data = bytearray(segment.read_bytes())
    data[data.index(b'"result"')] ^= 1
    segment.write_bytes(data)
    again = result_of(*args, code=Exit.BAD)
    assert (again["reused_trials"], again["left_trials"]) == (2, 0)
    (damage,) = [e for e in scores(tmp_path / "a")["episodes"] if not e["valid"]]
    assert damage["outcome"] == "UNREPLAYABLE"


def test_an_environment_of_railgym_needs_no_namespace(remote):
    args = (*remote, "--agent", "oracle", "--limit", 1, "--level", "L1", "--env")
    found = result_of(*args, "Typewriter-v1")
    assert [e["env_id"] for e in scores(found["folder"])["episodes"]] == ["railgym/Typewriter-v1"]
    assert result_of(*args, "railgym/Typewriter-v1")["reused_trials"] == 1


def test_overwrite_begins_anew(remote):
    args = (*remote, "--name", "a", "--agent", "oracle", "--task", DOG)
    first = result_of(*args)
    label = json.loads((Path(first["folder"]) / "config.json").read_text())["run"]
    assert plan_of(*args, "--overwrite") == {("oracle", "railgym/Typewriter-v1"): (0, 0, 0, 1)}
    again = result_of(*args, "--overwrite")
    assert again["reused_trials"] == 0
    assert json.loads((Path(again["folder"]) / "config.json").read_text())["run"] != label


# Folders


def test_two_runs_are_never_at_work_in_one_folder(tmp_path):
    args = ("--agent", "oracle", "--task", DOG, "--out", tmp_path, "--name", "a")
    with Folder(tmp_path, "a").taken():
        result = invoke(*args)
        assert result.exit_code == Exit.WRONG_INPUT
        assert "another run is at work" in result.stderr
    assert result_of(*args)["trials"] == 1


def test_a_folder_that_was_begun_when_its_run_was_killed_is_taken_up(tmp_path):
    for name, left in {"a": (), "b": (".lock",), "c": (".lock", "config.json.new")}.items():
        (tmp_path / name).mkdir()
        for file in left:
            (tmp_path / name / file).write_text("{")
        with Folder(tmp_path, name).taken():
            pass


def test_something_else_is_left_as_it_is(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.txt").write_text("precious")
    (tmp_path / "b").write_text("precious")
    for name in "ab":
        with pytest.raises(Failure, match="not the folder of a run"):
            Folder(tmp_path, name)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "config.json").write_text("[]")
    with pytest.raises(Failure, match=r"expected the config\.json of a run"):
        Folder(tmp_path, "c")


def test_sessions_that_a_killed_run_left_on_a_server_are_ended(server, remote):
    args = (*remote, "--name", "a", "--agent", "oracle", "--task", DOG)
    config = json.loads((Path(result_of(*args)["folder"]) / "config.json").read_text())
    with railgym.connect(server.address) as client:
        left = client.session(None, DOG, {"run": config["run"], "key": "of another request"})
        left.reset(seed=1)
        assert result_of(*args)["reused_trials"] == 1
        with pytest.raises(railgym.errors.SessionClosed):
            left.step(railgym.Final(""))


# Failures


def test_a_trial_that_could_not_be_played_is_told_and_played_the_next_time(remote):
    claiming.error = ModelFailed("no answer in time", CLAIM | {"retries": RETRIES})
    claiming.fails_at = (1,)
    args = (*remote, "--name", "a", "--agent", "test_run:claiming", "--task", DOG, "--task", A)
    first = result_of(*args, "--concurrency", 1, code=Exit.BAD)
    (line,) = failures(first["folder"])
    assert (line["agent"], line["trial"], line["retries"]) == ("test_run:claiming", 1, RETRIES)
    assert line["task_id"] in (DOG, A)
    assert (line["kind"], line["error"]) == ("api_error", "ModelFailed: no answer in time")
    assert line["at"] is line["traceback"] is None
    assert first["failed_trials"] == 1
    invalid = [e for e in scores(first["folder"])["episodes"] if not e["valid"]]
    assert [e["invalid_reason"] for e in invalid] == ["api_error"]
    assert [e["metrics"]["model_calls"] for e in invalid] == [1], "expected its claim in the log"

    assert plan_of(*args) == {("test_run:claiming", "railgym/Typewriter-v1"): (1, 0, 1, 0)}
    again = result_of(*args)
    assert (again["reused_trials"], again["failed_trials"]) == (1, 0)
    assert failures(again["folder"]) == []
    found = scores(again["folder"])
    assert [e["valid"] for e in found["episodes"]] == [True, True]
    assert [e["invalid_reason"] for e in found["superseded"]] == ["superseded"]


@pytest.mark.parametrize(
    "error", [ValueError("oops"), SystemExit(3), asyncio.CancelledError("cancelled")], ids=repr
)
def test_an_agent_that_raises_costs_its_trial_alone(remote, error):
    claiming.error, claiming.fails_at = error, (1,)
    args = (*remote, "--agent", "test_run:claiming", "--agent", "oracle", "--task", DOG)
    found = result_of(*args, code=Exit.BAD)
    assert (found["failed_trials"], found["left_trials"]) == (1, 0)
    (line,) = failures(found["folder"])
    assert line["error"] == f"{type(error).__name__}: {error}"
    assert line["kind"] == "agent_error"
    raised = Path(__file__).read_text().splitlines().index("                raise failing") + 1
    assert line["at"] == f"{__file__}:{raised}"
    assert line["traceback"].startswith("Traceback")
    assert "raise failing" in line["traceback"]
    told = f"agent_error: {line['error']}, at {line['at']}"
    assert found["wrong"] == [f"test_run:claiming at {DOG}, try 1: {told}"]
    (crashed,) = [e for e in scores(found["folder"])["episodes"] if not e["valid"]]
    assert crashed["success"] is None, "expected a crash never to count as a failure of a model"


def test_an_error_that_many_trials_share_is_told_once(remote):
    error = {"status": 401, "type": "authentication_error", "message": "no such key"}
    claiming.error = RunStopped("401 no such key", CLAIM | {"error": error})
    claiming.fails_at = (1, 2, 3)
    claiming.seconds = 0.5  # all of them have begun by then
    args = (*remote, "--agent", "test_run:claiming", "--task", DOG, "--repeats", 3)
    result = invoke(*args)
    assert result.exit_code == Exit.STOPPED
    assert result.stderr.count("RunStopped: 401 no such key") == 1
    assert f"at {DOG}, try " in result.stderr
    assert " and 2 more: " in result.stderr
    assert "The run was stopped. Not played: 3 trials\n" in result.stderr
    assert "n/a" not in result.stdout, "expected no table where nothing is valid"


def test_a_provider_that_refuses_stops_the_run_and_what_was_played_is_kept(remote):
    claiming.error = RunStopped("401 invalid x-api-key", CLAIM)
    claiming.fails_at = (3,)
    args = (*remote, "--agent", "test_run:claiming", "--task", DOG, "--repeats", 9)
    found = result_of(*args, "--concurrency", 1, code=Exit.STOPPED)
    assert (found["failed_trials"], found["left_trials"]) == (1, 6)
    assert any("401 invalid x-api-key" in line for line in found["wrong"])
    assert sum(e["valid"] for e in scores(found["folder"])["episodes"]) == 2
    again = result_of(*args)
    assert (again["reused_trials"], again["left_trials"]) == (2, 0)


def test_trials_that_run_come_to_their_end_when_the_run_is_stopped(remote):
    claiming.error, claiming.fails_at = RunStopped("quota used up"), (1,)
    claiming.seconds, other.seconds = 0.5, 1.0  # by then the other one has begun
    agents = ("--agent", "test_run:claiming", "--agent", "test_run:other")
    found = result_of(*remote, *agents, "--task", DOG, code=Exit.STOPPED)
    valid = [e["labels"]["agent"] for e in scores(found["folder"])["episodes"] if e["valid"]]
    assert valid == ["test_run:other"]


# Time


def test_a_trial_over_its_time_limit_counts_and_waiting_for_the_provider_does_not(remote):
    claiming.seconds = other.seconds = 0.4
    other.queue_ms = 300.0
    agents = ("--agent", "test_run:claiming", "--agent", "test_run:other")
    found = result_of(*remote, *agents, "--task", DOG, "--time-limit", 0.2)
    by_agent = {e["labels"]["agent"]: e for e in scores(found["folder"])["episodes"]}
    late, patient = by_agent["test_run:claiming"], by_agent["test_run:other"]
    assert (late["end_reason"], late["valid"], late["success"]) == ("time_limit", True, False)
    assert late["metrics"]["model_calls"] == 1, "expected the call that took too long to be claimed"
    assert (patient["end_reason"], patient["valid"]) == ("final", True)


# Money


def test_a_budget_holds_for_the_folder_and_a_higher_one_goes_on(tmp_path):
    args = ("--agent", "test_run:claiming", "--task", DOG, "--repeats", 5, "--concurrency", 1)
    args += ("--out", tmp_path, "--budget-usd")
    first = result_of(*args, 1.5 * CALL_USD, code=Exit.BUDGET)
    assert (first["left_trials"], claiming.played) == (3, 2)
    assert first["claimed"]["usd"] == pytest.approx(2 * CALL_USD)
    assert first["claimed"]["tokens"] == 2 * 1_100
    assert "--budget-usd" in first["wrong"][0]
    assert len(scores(first["folder"])["episodes"]) == 2
    again = result_of(*args, 1.5 * CALL_USD, code=Exit.BUDGET)
    assert (again["left_trials"], claiming.played) == (3, 2)
    higher = result_of(*args, 99)
    assert higher["folder"] == first["folder"]
    assert (higher["reused_trials"], higher["left_trials"], claiming.played) == (2, 0, 5)
    assert higher["claimed"]["usd"] == pytest.approx(5 * CALL_USD)


def test_a_model_without_a_price_is_named_before_the_first_trial(tmp_path):
    args = ("--agent", "test_run:claiming", "--task", DOG, "--budget-usd", 1, "--out", tmp_path)
    warning = "test_run:claiming: its model has no price"
    assert warning not in invoke(*args, "--name", "priced").stderr
    claiming.model = "nobody-knows"
    assert invoke(*args, "--name", "other").stderr.startswith(warning)


def test_a_name_that_is_no_label_is_refused(tmp_path):
    result = invoke("--agent", f"chat:{'m' * 300}", "--task", DOG, "--out", tmp_path)
    assert result.exit_code == Exit.WRONG_INPUT
    assert "at most 256 bytes, got 305" in result.stderr


@pytest.mark.parametrize(
    ("name", "meant"), [("openia:gpt-5", "openai:gpt-5"), ("chta:m", "chat:m")]
)
def test_a_provider_that_is_written_wrongly_is_guessed(name, meant, tmp_path):
    result = invoke("--agent", name, "--task", DOG, "--out", tmp_path)
    assert result.exit_code == Exit.WRONG_INPUT
    assert f"did you mean {meant}?" in result.stderr


def test_a_base_url_without_a_scheme_is_refused_before_anything_is_played(tmp_path):
    result = invoke(
        "--agent", "chat:m?base_url=localhost:8000/v1", "--task", DOG, "--out", tmp_path
    )
    assert result.exit_code == Exit.WRONG_INPUT
    assert "expected http:// or https:// and a host for base_url" in result.stderr
    assert not list(tmp_path.iterdir())


def test_on_a_server_of_the_users_the_cost_so_far_is_that_of_its_scores(remote):
    args = (*remote, "--agent", "test_run:claiming", "--task", DOG, "--budget-usd", CALL_USD)
    result_of(*args)
    more = result_of(*args, "--name", "b", "--repeats", 2, "--concurrency", 1, code=Exit.BUDGET)
    assert more["left_trials"] == 1
    again = result_of(*args, "--name", "b", "--repeats", 2, code=Exit.BUDGET)
    assert (again["left_trials"], claiming.played) == (1, 2)
    assert again["claimed"] == more["claimed"]


def test_a_model_without_a_price_costs_something_unknown(remote):
    claiming.model = "nobody-knows-it"
    args = (*remote, "--agent", "test_run:claiming", "--task", DOG, "--budget-usd", 0.01)
    for _ in range(2):  # played now, and known from before
        found = result_of(*args)
        assert (found["unpriced_calls"], found["claimed"]["usd"]) == (1, None)
        assert any("unknown cost" in line for line in found["wrong"])
        gap = "Cost unknown: no price for anthropic/nobody-knows-it"
        assert found["price_remarks"] == [gap]
    shown = invoke(*args)
    assert gap in shown.stdout
    assert "1 call, 1,100 tokens, 1 call of unknown cost" in shown.stdout
    assert "$0" not in shown.stdout + shown.stderr.replace("$0.01", "")


def test_calls_that_used_nothing_have_no_cost_and_lack_no_price(registry):
    tally, trial = Tally(Spending(prices_with())), dog_trial(registry)
    failed = CLAIM | {"usage": None, "error": {"status": 401}}
    for model in ("claude-fable-5", "nobody-knows-it"):
        tally.claimed(trial, failed | {"model": model})
    assert usage(tally) == "2 calls, 0 tokens"
    tally.claimed(trial, CLAIM | {"model": "nobody-knows-it"})
    assert usage(tally) == "3 calls, 1,100 tokens, 1 call of unknown cost"
    tally.claimed(trial, CLAIM)
    assert usage(tally) == "4 calls, 2,200 tokens, $0.0150 and 1 call of unknown cost"


def test_a_run_keeps_its_price_tables_for_whoever_scores_it_again(remote, tmp_path):
    own = tmp_path / "own.toml"
    price = '{ provider = "*", model = "claude-*", input = 1_000, output = 0 }'
    idle = '{ provider = "openai", model = "gpt-5.4", input = 1, output = 1 }'
    own.write_text(f'name = "ours"\ndate = 2026-12-01\nsource = ""\nprice = [{price}, {idle}]\n')
    (tmp_path / "idle.toml").write_text(own.read_text().replace(f"{price}, ", ""))
    tables = ("--prices", own, "--prices", tmp_path / "idle.toml")
    args = ("--agent", "test_run:claiming", "--task", DOG, "--out", tmp_path, "--name", "a")
    found = result_of(*args, *tables)
    remark = "Price table ours 2026-12-01: no price in it is of a model that played"
    assert found["price_remarks"] == [remark]
    own.unlink()
    for path in (tmp_path / "a", tmp_path / "a" / "log"):
        again = CliRunner().invoke(app, ["score", str(path), "-o", str(tmp_path / "again.json")])
        assert again.exit_code == Exit.OK, again.output
        (episode,) = json.loads((tmp_path / "again.json").read_text())["episodes"]
        assert (episode["metrics"]["cost_usd"], episode["price_source"]) == (1, "ours 2026-12-01")
        assert remark in again.stderr


def test_a_cost_by_call_stands_for_the_estimate_of_a_dry_run_too(registry, tmp_path):
    folder = Folder(tmp_path, "a")
    claims = [
        CLAIM | {"model": "claude-haiku-5-5", "turn": turn, "usage": {"input": count, "output": 0}}
        for turn, count in ((1, 10), (2, 200_000))
    ]
    play = Play(registry.tasks[DOG], letters("dog"), {"agent": "a"}, claims=claims)
    write_log(folder.log, [play], registry)
    prices, out = prices_with(), folder.path / "scores.json"
    CliRunner().invoke(app, ["score", str(folder.path), "-o", str(out)])
    earlier = earlier_in(folder, registry, prices, Spending(prices))
    (score,) = earlier.scores
    assert earlier.kept == {score.episode_id}
    assert score.metrics["cost_usd"] == pytest.approx((10 * 0.1 + 200_000 * 0.5) / 1e6)


def test_a_report_without_scores_says_what_makes_them(tmp_path):
    folder = result_of("--agent", "idle", "--task", DOG, "--out", tmp_path)["folder"]
    (Path(folder) / "scores.json").unlink()
    report = CliRunner().invoke(app, ["report", folder])
    assert report.exit_code == Exit.WRONG_INPUT
    assert f"railgym score {folder} -o {folder}/scores.json makes one" in report.stderr
    CliRunner().invoke(app, ["score", folder, "-o", f"{folder}/scores.json"])
    assert CliRunner().invoke(app, ["report", folder]).exit_code == Exit.OK


# Dry runs


def test_a_dry_run_says_what_would_be_done_and_does_nothing(remote, tmp_path):
    args = (*remote, "--name", "a", "--agent", "test_run:claiming")
    text = invoke(*args, "--task", DOG, "--dry-run").stdout
    assert "unknown" in text
    assert list(tmp_path.iterdir()) == []
    result_of(*args, "--task", DOG, "--repeats", 2)
    before = {path: path.read_bytes() for path in (tmp_path / "a").iterdir() if path.is_file()}

    more = (*args, "--agent", "test_run:other", "--agent", "idle", "--task", DOG, "--repeats", 5)
    found = result_of(*more, "--dry-run")
    rows = {row["agent"]: row for row in found["plan"]}
    assert (rows["test_run:claiming"]["reused"], rows["test_run:claiming"]["new"]) == (2, 3)
    assert rows["test_run:claiming"]["tokens"] == 3 * 1_100
    assert rows["test_run:claiming"]["cost_usd"] == pytest.approx(3 * CALL_USD)
    assert (rows["test_run:other"]["new"], rows["test_run:other"]["cost_usd"]) == (5, None)
    assert (rows["idle"]["new"], rows["idle"]["cost_usd"]) == (5, 0)
    assert found["cost_usd"] is None
    known = result_of(*args, "--task", DOG, "--repeats", 5, "--dry-run")
    assert known["cost_usd"] == pytest.approx(3 * CALL_USD)
    claiming.model = "nobody-knows-it"  # another model, so another key; and its agent's past costs
    assert result_of(*args, "--task", DOG, "--dry-run")["plan"][0]["new"] == 1
    assert {path: path.read_bytes() for path in before} == before
    assert (claiming.played, other.played) == (2, 0)


def test_another_scorer_means_scoring_again_and_never_playing_again(tmp_path):
    args = ("--agent", "oracle", "--task", DOG, "--task", A, "--out", tmp_path, "--name", "a")
    result_of(*args)
    assert list(plan_of(*args).values()) == [(2, 0, 0, 0)]
    path = tmp_path / "a" / "scores.json"
    for changed in (scores(tmp_path / "a") | {"scorer_sha256": "0" * 64}, None):
        path.write_text("{torn" if changed is None else json.dumps(changed))
        assert list(plan_of(*args).values()) == [(0, 2, 0, 0)]
    log = {file: file.read_bytes() for file in (tmp_path / "a" / "log").iterdir()}
    assert result_of(*args)["reused_trials"] == 2
    assert list(plan_of(*args).values()) == [(2, 0, 0, 0)]
    assert {file: file.read_bytes() for file in log} == log


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The folder of a run on a server of its own."""
    out = tmp_path_factory.mktemp("runs")
    args = ("--agent", "oracle", "--agent", "random", "--task", DOG, "--task", A, "--repeats", 2)
    return Path(result_of(*args, "--out", out)["folder"])


def test_a_log_cut_at_any_byte_keeps_every_completed_episode(played, registry, tmp_path):
    folder = tmp_path / "a"
    shutil.copytree(played, folder)
    (folder / "scores.json").unlink()
    (segment,) = (folder / "log").glob("*.rgl")
    data, counts, prices = segment.read_bytes(), set(), prices_with()
    for size in range(len(data), 0, -max(1, len(data) // 60)):
        segment.write_bytes(data[:size])
        complete = [e for e in logged_episodes(folder / "log") if e.ended is not None]
        earlier = earlier_in(Folder(tmp_path, "a"), registry, prices, Spending(prices))
        assert len(earlier.finished()) == len(complete)
        counts.add(len(complete))
    assert counts == set(range(9))


def test_what_was_claimed_counts_for_the_budget_however_the_log_is_cut(registry, tmp_path):
    result_of("--agent", "test_run:claiming", "--task", DOG, "--out", tmp_path, "--name", "a")
    (segment,) = (tmp_path / "a" / "log").glob("*.rgl")
    data, prices, unfinished = segment.read_bytes(), prices_with(), False
    for size in range(len(data), 0, -max(1, len(data) // 60)):
        segment.write_bytes(data[:size])
        spending = Spending(prices)
        earlier_in(Folder(tmp_path, "a"), registry, prices, spending)
        left = [e for e in logged_episodes(segment.parent) if e.claims]
        assert spending.total().usd == pytest.approx(len(left) * CALL_USD)
        unfinished |= any(e.ended is None for e in left)
    assert unfinished


def test_a_log_cut_in_the_middle_is_played_to_its_end(played, tmp_path):
    shutil.copytree(played, tmp_path / played.name)
    (segment,) = (tmp_path / played.name / "log").glob("*.rgl")
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) * 2 // 3])
    args = ("--agent", "oracle", "--agent", "random", "--task", DOG, "--task", A, "--repeats", 2)
    found = result_of(*args, "--out", tmp_path)
    assert 0 < found["reused_trials"] < 8
    assert outcomes(found["folder"]) == outcomes(played)


def outcomes(folder):
    """Each trial that counts with what came of it."""
    found = [
        (e["labels"]["agent"], e["task_id"], e["labels"]["trial"], e["reward"], e["steps"])
        for e in scores(folder)["episodes"]
    ]
    return sorted(found)


# What is counted


def test_half_rewards_are_no_successes(registry):
    tally, trial = Tally(Spending(prices_with())), dog_trial(registry)
    tally.expect([trial, trial], {})
    for reward in (0.5, 0.5):
        tally.played(Played(trial, reward, None))
    assert (tally.total().judged, tally.total().won) == (2, 0)


def test_of_two_valid_episodes_of_one_trial_only_the_first_counts(server, remote):
    args = (*remote, "--name", "a", "--agent", "oracle", "--task", DOG)
    folder = Path(result_of(*args)["folder"])
    (episode,) = scores(folder)["episodes"]
    labels = episode["labels"]
    with railgym.connect(server.address) as client, client.session(None, DOG, labels) as session:
        session.reset(seed=1)
        session.final("")
    again = result_of(*args, "--fail-under", 1)
    assert again["reused_trials"] == 1
    found = scores(folder)
    assert [e["episode_id"] for e in found["episodes"]] == [episode["episode_id"]]
    assert [e["invalid_reason"] for e in found["superseded"]] == ["superseded"]


def test_fail_under_looks_at_each_agent_over_its_valid_trials(remote):
    args = (*remote, "--name", "a", "--task", DOG, "--agent", "oracle")
    assert result_of(*args, "--fail-under", 1)["wrong"] == []
    mixed = result_of(*args, "--agent", "idle", "--fail-under", 0.5, code=Exit.BAD)
    assert mixed["wrong"] == ["idle: success 0.000 over 1 valid trial is under 0.5"]
    assert result_of(*args, "--agent", "idle", "--fail-under", 0)["wrong"] == []
    claiming.error, claiming.fails_at = ModelFailed("gone"), (1,)
    none = result_of(*args, "--agent", "test_run:claiming", "--fail-under", 0.1, code=Exit.BAD)
    assert "test_run:claiming: no valid trial of a task, so no success of 0.1" in none["wrong"]


# Threads


def test_no_more_trials_at_once_than_asked_for(registry):
    trials = plan(["oracle"], [dog_trial(registry).target], 12, 0)
    at_work, most, lock = 0, 0, threading.Lock()

    def attempt(trial):
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.02)
        with lock:
            at_work -= 1
        return 1.0

    with Pool(lambda: True) as pool:
        played = list(pool.play(trials, attempt, 3))
    assert {p.trial for p in played} == set(trials)
    assert most == 3


def test_a_pool_that_is_left_does_not_wait_for_a_model_that_never_answers(registry, monkeypatch):
    monkeypatch.setattr("env_server.cli.trials.STOP_SECONDS", 0.2)
    trials = plan(["oracle"], [dog_trial(registry).target], 3, 0)
    answer = threading.Event()

    def attempt(trial):
        if trial.number == 2:
            answer.wait(60)
        return 1.0

    before = time.monotonic()
    with Pool(lambda: True) as pool:
        next(pool.play(trials, attempt, 2))
    assert time.monotonic() - before < 5
    answer.set()


# What is shown


def busy_tally(registry):
    tally, trial = Tally(Spending(prices_with())), dog_trial(registry)
    trials = plan(["oracle"], [trial.target], 4, 0)
    trials = [t._replace(key=str(t.number)) for t in trials]
    tally.expect(trials, {"1": True})
    tally.claimed(trials[1], CLAIM | {"queue_ms": 2_500.0})
    tally.stepped(trials[1], railgym.Transition("", 0.0, False, False, {"fault": "tool_error"}))
    tally.played(Played(trials[1], 0.0, None))
    tally.played(Played(trials[2], None, ModelFailed("gone")))
    return tally


def test_a_line_says_how_far_a_run_has_come(registry):
    line = summary_line(busy_tally(registry))
    for part in (
        "played 2 of 4 (1 from before)",
        "success 1/2 = 0.50 [0.09, 0.91]",
        "faults 1",
        "could not be played 1",
        "1 call, 1,100 tokens, $0.0150",
        "2 s of waiting for throttle and provider",
        "left",
    ):
        assert part in line


def test_plain_lines_come_now_and_then_also_while_no_trial_ends(registry, capsys):
    throttle = Throttle()
    throttle.trouble = "Connection refused at http://nobody, attempt 4 of 10"
    with plain_lines(busy_tally(registry), {"chat:m": throttle}):
        assert capsys.readouterr().err == ""
    with plain_lines(busy_tally(registry), {"chat:m": throttle}, line_seconds=0.05):
        time.sleep(0.5)
    told = capsys.readouterr().err
    assert told.count("played 2 of 4") > 1
    assert "chat:m waits: Connection refused at http://nobody, attempt 4 of 10\n" in told


def test_the_live_view_shows_environments_models_and_waiting(registry):
    single = Throttle(maximum=1)
    single.trouble = "overloaded, attempt 2 of 10"
    throttles = {"anthropic:m": Throttle(), "chat:m": single}
    drawn = Drawn(busy_tally(registry), throttles, "railgym run a")
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(drawn)
    text = console.export_text()
    for part in (
        "railgym run a",
        "railgym/Typewriter-v1",
        "2/4 (1 from before)",
        "1/2 = 0.50 [0.09, 0.91]",
        "anthropic:m: at most 3 calls at once, 0 waiting",
        "chat:m: at most 1 call at once, 0 waiting",
        "chat:m waits: overloaded, attempt 2 of 10",
        "$0.0150",
        "left",
    ):
        assert part in text


def test_a_terminal_sees_the_live_view(tmp_path):
    """In a process of its own: one that was ever a terminal's stays so for rich."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "env_server.cli", "run", "--agent", "oracle", "--task", DOG]
    process = subprocess.Popen(
        [*command, "--repeats", "30", "--out", tmp_path],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65_536):
            seen += chunk
    except OSError:
        pass  # Linux says so when the other end is closed
    os.close(ours)
    assert process.wait(60) == 0
    assert b"railgym/Typewriter-v1" in seen
    assert b"30/30" in seen


def test_a_session_on_a_server_of_our_own_outlives_a_person_who_thinks(tmp_path):
    messages = tmp_path / "server.log"
    with own_server(tmp_path / "log", messages, [], []) as address, connected(address) as client:
        assert client.session(task_id=DOG).lease_seconds > 86_400


def test_a_session_outlives_a_model_that_takes_longer_than_its_lease(serve, tmp_path):
    server = serve(lease_seconds=1.0)
    claiming.seconds = 4.0
    args = ("--address", server.address, "--out", tmp_path, "--task", DOG)
    found = result_of(*args, "--agent", "test_run:claiming")
    (episode,) = scores(found["folder"])["episodes"]
    assert (episode["end_reason"], episode["valid"]) == ("final", True)


# Ctrl-C


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, 128 + signal.SIGTERM)],
)
def test_a_signal_is_answered_at_once_and_the_same_command_goes_on(number, code, tmp_path):
    args = ("--agent", "random", "--env", "TypewriterKeys-v1", "--repeats", "4")
    args += ("--out", str(tmp_path), "--name", "a")
    process = subprocess.Popen(
        [sys.executable, "-m", "env_server.cli", "run", *args],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    log = tmp_path / "a" / "log"
    deadline = time.monotonic() + 60
    while not (log.is_dir() and sum(file.stat().st_size for file in log.iterdir()) > 20_000):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code
    assert stderr.count("Stopping; Ctrl-C again to end at once.\n") == 1
    assert "the same command goes on" in stderr
    assert "Traceback" not in stderr
    found = result_of(*args)
    assert 0 < found["reused_trials"] < found["trials"]
    assert found["left_trials"] == found["failed_trials"] == 0
    assert sum(e["valid"] for e in scores(found["folder"])["episodes"]) == found["trials"]
