"""The `railgym` command: what it prints, its exit codes, and what it says of bad input."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent import futures

import duckdb
import grpc
import pytest
import typer
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from typer.testing import CliRunner

import railgym
from env_server.cli.app import app
from env_server.cli.exits import Exit
from env_server.cli.options import DEFAULT_ADDRESS, Level
from env_server.envs import ENVS
from env_server.service import server as service
from env_server.tasks import LEVELS, bundled_folder

RAILGYM = [sys.executable, "-m", "env_server.cli"]
HEAVY = ["duckdb", "grpc", "gymnasium", "matplotlib", "numpy", "scipy", "structlog"]
LONG = "x" * 10_000
DOG = "typewriter/reference/dog"


def invoke(*args, typed=None):
    """Runs a command in this process."""
    return CliRunner().invoke(app, list(map(str, args)), input=typed, prog_name="railgym")


def execute(*args, cwd=None, code=0):
    """Runs the real command in a process of its own."""
    done = subprocess.run(
        [*RAILGYM, *map(str, args)], capture_output=True, text=True, timeout=100, cwd=cwd
    )
    assert done.returncode == code, done.stderr
    return done


def commands(group=None, path=()):
    """Every command with its path of names."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


@pytest.mark.parametrize("args", [("--help",), ("serve", "--help")])
def test_help_imports_nothing_that_takes_time(args):
    code = (
        "import atexit, sys; from env_server.cli import main\n"
        f"loaded = lambda: [name for name in {HEAVY} if name in sys.modules]\n"
        "atexit.register(lambda: print(loaded(), file=sys.stderr)); sys.argv[0] = 'railgym'; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "Usage: railgym" in done.stdout
    assert done.stderr == "[]\n"


def test_says_what_to_install_where_the_server_is_not():
    code = "import sys; sys.modules['typer'] = None; from env_server.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == Exit.WRONG_INPUT
    assert "railgym[server]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_of_every_command_has_an_example_and_explains_every_option(path):
    result = invoke(*path, "--help")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert text.count(f"railgym {' '.join(path)} ") > 1  # in the usage, and in an example
    undocumented = [p.name for p in COMMANDS[path].params if not getattr(p, "help", None)]
    assert undocumented == []


def test_every_command_with_a_result_gives_it_as_json():
    lines_already = {("serve",), ("tasks", "generate"), ("log", "show"), ("log", "export")}
    files = {("report",)}
    without = {
        path for path, c in COMMANDS.items() if not any("--json" in p.opts for p in c.params)
    }
    assert without == lines_already | files


def test_help_lists_every_exit_code():
    text = invoke("--help").stdout
    assert all(re.search(rf"\b{code:d}\b", text) for code in Exit)


def test_version():
    assert invoke("--version").stdout == f"railgym {railgym.__version__}\n"


def test_defaults_are_those_of_the_server(tmp_path):
    defaults = {p.name: p.default for p in COMMANDS["serve",].params}
    settings = service.Settings(tmp_path)
    assert defaults["address"] == settings.address == DEFAULT_ADDRESS
    assert (defaults["max_sessions"], defaults["lease"]) == (
        settings.capacity,
        settings.lease_seconds,
    )
    assert tuple(Level) == LEVELS


# What there is


def test_envs_lists_and_shows(server):
    listed = json.loads(invoke("envs", "--json").stdout)
    assert {env["env_id"] for env in listed} == set(ENVS)
    remote = json.loads(invoke("envs", "--address", server.address, "--json").stdout)
    assert all(env in remote for env in listed)
    for env in listed:
        text = invoke("envs", env["env_id"]).stdout
        assert all(f"{tool['name']}(" in text for tool in env["tools"])


def test_tasks_are_listed_by_env_level_and_tag(server):
    args = ("--env", "railgym/Typewriter-v1", "--level", "L1", "--tag", "reference", "--json")
    found = json.loads(invoke("tasks", "list", *args).stdout)
    assert found == json.loads(invoke("tasks", "list", "--address", server.address, *args).stdout)
    assert {(t["env_id"], t["level"]) for t in found} == {("railgym/Typewriter-v1", "L1")}
    assert all("reference" in t["tags"] for t in found)
    assert len(found) < len(json.loads(invoke("tasks", "list", "--json").stdout))


def test_a_task_is_shown_without_what_gives_it_away():
    shown = json.loads(invoke("tasks", "show", DOG, "--json").stdout)
    whole = json.loads(invoke("tasks", "show", DOG, "--gold", "--json").stdout)
    assert set(whole) - set(shown) == {"gold", "expected", "validators"}
    assert "type_letter" in invoke("tasks", "show", DOG, "--gold").stdout


def test_generated_tasks_are_the_same_for_a_seed_and_pass_the_lint(tmp_path):
    args = ("railgym/Typewriter-v1", "--count", 2, "--seed", 5)
    text = invoke("tasks", "generate", *args).stdout
    assert invoke("tasks", "generate", *args, "-o", tmp_path / "fresh.jsonl").exit_code == 0
    assert (tmp_path / "fresh.jsonl").read_text() == text
    assert len(text.splitlines()) == 2 * len(LEVELS)
    result = invoke("tasks", "lint", tmp_path, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (Exit.OK, [])


def test_lint_names_file_and_line_and_goes_on(tmp_path):
    file = tmp_path / "tasks.jsonl"
    line = (bundled_folder() / "typewriter" / "reference.jsonl").read_text().splitlines()[0]
    wrong = json.loads(line) | {"task_id": "wrong", "gold": [{"final": "no"}]}
    file.write_text("\n".join(["{", line, json.dumps(wrong), '{"task_id": 3}', line]))
    result = invoke("tasks", "lint", file)
    assert result.exit_code == Exit.BAD
    places = [found.split(": ")[0] for found in result.stdout.splitlines()]
    assert places == [f"{file}:{number}" for number in (1, 3, 4, 5)]
    as_json = json.loads(invoke("tasks", "lint", file, "--json").stdout)
    assert [item["place"] for item in as_json] == places


# Bad input


@pytest.mark.parametrize("name", ["", "railgym/Typewrter-v1", LONG])
@pytest.mark.parametrize(
    "args",
    [
        ("envs",),
        ("tasks", "show"),
        ("tasks", "list", "--env"),
        ("tasks", "list", "--tag"),
        ("tasks", "generate"),
        ("run", "--env"),
        ("run", "--task"),
        ("run", "--agent"),
        ("run", "--name"),
        ("play", "--env"),
        ("play",),
        ("score", "--env"),
        ("health", "--address"),
        ("envs", "--address"),
        ("log", "show", "--episode"),
    ],
    ids=" ".join,
)
def test_an_unknown_name_is_told_in_a_line(args, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*args, name)
    assert result.exit_code == Exit.WRONG_INPUT
    assert len(result.stderr) < 1_000
    assert len(result.stderr.splitlines()) <= 2
    assert result.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_the_nearest_names_are_offered():
    assert "railgym/Typewriter-v1" in invoke("envs", "railgym/Typewrter").stderr
    assert DOG in invoke("tasks", "show", "typewriter/reference/dgo").stderr
    assert "CartPole-v1" in invoke("run", "--env", "CartPol-v1").stderr
    for command in (("run", "--task"), ("tasks", "show")):
        offered = invoke(*command, "orders/nope").stderr.partition("nearest: ")[2]
        assert len(names := offered.strip().split(", ")) == 3
        assert all(name.startswith("orders/") for name in names)


def test_a_bad_task_file_keeps_the_server_from_starting(tmp_path):
    file = tmp_path / "bad.jsonl"
    file.write_text("\n{}\n")
    done = execute("serve", "--tasks", file, "--log-dir", tmp_path / "log", code=Exit.WRONG_INPUT)
    assert f"{file}:2: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_told(server, tmp_path):
    log = tmp_path / "log"
    done = execute("serve", "--address", server.address, "--log-dir", log, code=Exit.NO_SERVER)
    assert server.address in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert invoke("health", "--address", server.address).exit_code == Exit.OK


# Health


def test_health_tells_serving_from_not_serving_and_from_silence(server):
    result = invoke("health", "--address", server.address, "--wait", 5, "--json")
    assert json.loads(result.stdout) == {"address": server.address, "status": "SERVING"}
    assert invoke("health", "--address", server.address).stdout == "SERVING\n"
    silent = invoke("health", "--address", "127.0.0.1:1", "--wait", 0.2)
    assert silent.exit_code == invoke("health", "--address", "127.0.0.1:1").exit_code == 3
    assert "127.0.0.1:1" in silent.stderr


def test_health_of_a_server_that_does_not_serve():
    servicer = health.HealthServicer()
    servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        for wait in (0, 0.3):
            result = invoke("health", "--address", address, "--wait", wait)
            assert (result.exit_code, result.stdout) == (Exit.BAD, "NOT_SERVING\n")
    finally:
        server.stop(None).wait()


# Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of the real command: two agents, two environments, two tries."""
    out = tmp_path_factory.mktemp("runs")
    envs = ("--env", "railgym/Typewriter-v1", "--env", "railgym/Relational-v1")
    agents = ("--agent", "oracle", "--agent", "idle")
    done = execute("run", *envs, *agents, "--limit", 1, "--repeats", 2, "--out", out, "--name", "a")
    assert str(out / "a" / "report.html") in done.stdout
    return out / "a"


def scores_of(folder):
    return json.loads((folder / "scores.json").read_text())["episodes"]


def logged(folder):
    return list(map(json.loads, invoke("log", "list", folder, "--json").stdout.splitlines()))


def test_a_run_leaves_its_folder_and_no_server(run):
    episodes = scores_of(run)
    assert len(episodes) == 2 * len(LEVELS) * 2 * 2
    assert {e["outcome"] for e in episodes} == {"VERIFIED"}
    assert all(e["success"] == (e["labels"]["agent"] == "oracle") for e in episodes)
    config = json.loads((run / "config.json").read_text())
    assert config["trials"] == len(episodes)
    assert set(config["sha256"]) == {e["task_id"] for e in episodes}
    assert {e["labels"]["run"] for e in episodes} == {config["run"]}
    assert {e["labels"]["trial"] for e in episodes} == {"1", "2"}
    assert "<html" in (run / "report.html").read_text()
    assert "stopped" in (run / "server.log").read_text()


def test_a_trial_has_a_seed_of_its_own_and_all_agents_share_it(run):
    seeds = {}
    for line in invoke("log", "show", run).stdout.splitlines():
        started = json.loads(line).get("episode_started")
        if started:
            trial = started["task_id"], started["labels"]["trial"]
            seeds.setdefault(trial, set()).add(started["seed"])
    assert all(len(found) == 1 for found in seeds.values())
    assert len({min(found) for found in seeds.values()}) == len(seeds)


def test_a_run_is_never_overwritten_unasked(run, tmp_path):
    shutil.copytree(run, tmp_path / "a")
    before = {path: path.read_bytes() for path in (tmp_path / "a" / "log").iterdir()}
    args = ("run", "--agent", "idle", "--task", DOG, "--out", tmp_path, "--name", "a")
    assert invoke(*args).exit_code == Exit.OK
    assert {path: path.read_bytes() for path in before} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    args = ("run", "--agent", "idle", "--task", DOG, "--out", tmp_path, "--name", "mine")
    assert invoke(*args, "--overwrite").exit_code == Exit.WRONG_INPUT
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_overwrite_replaces_a_run(tmp_path):
    args = ("run", "--agent", "oracle", "--out", tmp_path, "--name", "a", "--json")
    first = invoke(*args, "--task", DOG)
    again = invoke(*args, "--task", "typewriter/reference/a", "--overwrite")
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert json.loads(again.stdout)["folder"] == str(tmp_path / "a")
    assert [e["task_id"] for e in scores_of(tmp_path / "a")] == ["typewriter/reference/a"]


AGENTS = """
import railgym
from env_server.env import ToolEnv, tool

class Counter(ToolEnv):
    "Count to four."

    def _begin(self):
        self.count = 0
        return 0

    @tool
    def add(self, amount: int) -> int:
        "Adds to the count."
        self.count += amount
        return self.count

    def state(self):
        return {"count": self.count}

    def _outcome(self, answered):
        return float(self.count == 4), self.count >= 4 or answered

def adder(briefing):
    return lambda seen: railgym.call("add", amount=2)

def broken(briefing):
    raise RuntimeError("no model")
"""


def test_a_users_own_agent_and_environment_and_one_that_fails(tmp_path):
    (tmp_path / "mine.py").write_text(AGENTS)
    agents = ("--agent", "mine:adder", "--agent", "mine:broken", "--agent", "oracle")
    done = execute(
        "run", *agents, "--env", "mine:Counter", "--name", "a", cwd=tmp_path, code=Exit.BAD
    )
    told = "mine:broken at mine:Counter, try 1: agent_error: RuntimeError: no model, at "
    assert told + f"{tmp_path / 'mine.py'}:" in done.stderr
    assert "Traceback" not in done.stderr
    by_agent = {e["labels"]["agent"]: e for e in scores_of(tmp_path / "runs" / "a")}
    assert set(by_agent) == {"mine:adder", "mine:broken"}
    assert (by_agent["mine:adder"]["valid"], by_agent["mine:adder"]["reward"]) == (True, 1.0)
    assert by_agent["mine:broken"]["invalid_reason"] == "api_error"
    assert by_agent["mine:broken"]["reward"] is None


def test_ctrl_c_ends_the_server_and_keeps_what_was_played(tmp_path):
    command = [*RAILGYM, "run", "--repeats", "1000", "--out", str(tmp_path), "--name", "a"]
    command += ["--env", "railgym/TypewriterKeys-v1"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=_take_interrupts
    )
    log = tmp_path / "a" / "log"
    _await(lambda: log.is_dir() and sum(f.stat().st_size for f in log.iterdir()) > 50_000)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert "railgym score" in stderr
    assert "Traceback" not in stderr
    assert "stopped" in (tmp_path / "a" / "server.log").read_text()
    episodes = json.loads(invoke("score", tmp_path / "a", "--json").stdout)["episodes"]
    assert {e["outcome"] for e in episodes} == {"VERIFIED"}
    assert {e["invalid_reason"] for e in episodes} <= {None, "api_error"}


def _take_interrupts():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _await(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_on_a_server_of_the_users_is_scored_there(server, tmp_path):
    args = ("run", "--address", server.address, "--out", tmp_path, "--name", "a", "--limit", 1)
    result = invoke(*args, "--level", "L1")
    assert result.exit_code == Exit.OK, result.stderr
    episodes = scores_of(tmp_path / "a")
    assert {e["labels"]["agent"] for e in episodes} == {"oracle", "idle", "random"}
    assert all(e["success"] == (e["labels"]["agent"] == "oracle") for e in episodes)
    assert not (tmp_path / "a" / "log").exists()


# Score, report, log


def test_score_replays_a_log_and_writes_what_it_found(run, tmp_path):
    result = invoke("score", run, "-o", tmp_path / "again.json")
    assert result.exit_code == Exit.OK
    assert "oracle" in result.stdout
    assert json.loads((tmp_path / "again.json").read_text())["episodes"] == scores_of(run)
    assert json.loads(invoke("score", run / "log", "--json").stdout)["episodes"] == scores_of(run)


def test_a_report_is_made_again_from_scores(run, tmp_path):
    (tmp_path / "scores.json").write_bytes((run / "scores.json").read_bytes())
    result = invoke("report", tmp_path)
    assert result.stdout == f"{tmp_path / 'report.html'}\n"
    assert "data:image/svg" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"episodes": [{}]}', '{"episodes": 3}'])
def test_a_report_of_something_else_is_refused(text, tmp_path):
    (tmp_path / "scores.json").write_text(text)
    result = invoke("report", tmp_path)
    assert result.exit_code == Exit.WRONG_INPUT
    assert "scores.json" in result.stderr


@pytest.mark.parametrize(
    "command", [("log", "list"), ("log", "verify"), ("log", "show"), ("score",)]
)
def test_what_is_no_log_is_told(command, tmp_path):
    (tmp_path / "notes.txt").write_text("no log")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "notes.txt"):
        result = invoke(*command, path)
        assert result.exit_code == Exit.WRONG_INPUT
        assert str(path) in result.stderr


def test_the_log_is_listed_shown_verified_and_exported(run, tmp_path):
    episodes = logged(run)
    assert {e["end_reason"] for e in episodes} == {"final"}
    assert [e["start_time"] for e in episodes] == sorted(e["start_time"] for e in episodes)
    shown = invoke("log", "show", run).stdout
    one = invoke("log", "show", run, "--episode", episodes[0]["episode_id"]).stdout.splitlines()
    assert set(one) < set(shown.splitlines())
    assert {json.loads(line)["episode_id"] for line in one} == {episodes[0]["episode_id"]}
    assert invoke("log", "export", run, "-o", tmp_path / "log.jsonl").exit_code == 0
    assert (tmp_path / "log.jsonl").read_text() == shown
    table = tmp_path / "steps.parquet"
    assert invoke("log", "export", run, "--format", "parquet", "-o", table).exit_code == 0
    assert duckdb.read_parquet(str(table)).shape[0] == sum(e["steps"] for e in episodes)
    assert json.loads(invoke("log", "verify", run, "--json").stdout) == {
        "episodes": len(episodes),
        "problems": [],
    }


def damaged(run, tmp_path, harm):
    """A copy of a run's log, with harm done to the bytes of its segment."""
    (segment,) = (run / "log").glob("*.rgl")
    copy = tmp_path / segment.name
    copy.write_bytes(harm(segment.read_bytes()))
    return copy


def test_a_flipped_bit_costs_one_episode_and_is_told_with_its_place(run, tmp_path):
    def harm(data):
        place = data.index(b'"result"')
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    segment = damaged(run, tmp_path, harm)
    for command in (("log", "verify"), ("score",)):
        result = invoke(*command, tmp_path)
        assert result.exit_code == Exit.BAD
        assert f"{segment}:" in result.stdout
    assert len([e for e in logged(tmp_path) if e["problem"] is None]) == len(logged(run)) - 1
    shown = invoke("log", "show", tmp_path)
    assert shown.exit_code == Exit.BAD
    assert str(segment) in shown.stderr


def test_a_truncated_log_is_told_with_its_place_and_the_rest_is_scored(run, tmp_path):
    segment = damaged(run, tmp_path, lambda data: data[:-40])
    verified = invoke("log", "verify", tmp_path)
    assert verified.exit_code == Exit.BAD
    assert f"{segment}:" in verified.stdout
    scored = invoke("score", tmp_path, "--json")
    assert scored.exit_code == Exit.BAD
    assert f"{segment}:" in scored.stderr
    assert len(json.loads(scored.stdout)["episodes"]) == len(logged(run))


# Play


def lines_of(result):
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_person_plays_undoes_and_wins(tmp_path):
    typed = (
        "type_leter d\ntype_letter d\ntype_letter letter=x\nundo\n"
        'type_letter {"letter": "o"}\ntype_letter g g\ntype_letter "g"\nfinal done\nfinal\nquit\n'
    )
    log = tmp_path / "log"
    goal, reset, *seen = lines_of(invoke("play", DOG, "--log-dir", log, "--json", typed=typed))
    assert goal["task"]["task_id"] == DOG
    assert reset == {"observation": '{"result":""}', "step": 0}
    assert "type_letter" in seen[0]["error"]
    assert [s["observation"] for s in (seen[1], seen[2], seen[4], seen[6])] == [
        f'{{"result":"{paper}"}}' for paper in ("d", "dx", "do", "dog")
    ]
    assert seen[3] == {"step": 1, "undone": 2}
    assert "one value more" in seen[5]["error"]
    assert (seen[7]["reward"], seen[7]["end_reason"]) == (1.0, "final")
    assert "ended" in seen[8]["error"]
    scored = json.loads(invoke("score", log, "--json").stdout)["episodes"]
    assert [e["outcome"] for e in scored] == ["VERIFIED", "VERIFIED"]
    assert sorted(e["success"] for e in scored) == [False, True]


def test_a_person_chooses_and_reads(server):
    typed = "railgym/Nope\nrailgym/Typewriter-v1\n1\nhelp\ntools\nstate\nundo\nagain\n"
    result = invoke("play", "--address", server.address, typed=typed)
    assert result.exit_code == 0
    for part in ("nearest: railgym/", "type_letter(letter: string)", "undo", "paper"):
        assert part in result.stdout
    assert "there is no step to undo" in result.stdout


def test_a_person_plays_a_plain_environment(server):
    args = ("play", "--env", "CartPole-v1", "--address", server.address, "--json")
    _, _, *seen = lines_of(invoke(*args, typed="1\n7\n[1]\nleft\n0\n"))
    assert [s.get("reward") for s in seen] == [1.0, None, None, None, 1.0]
    assert all("Discrete(2)" in s["error"] for s in seen[1:4])


def test_play_ends_where_the_input_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("play", "--log-dir", "log", typed="\n\n").exit_code == Exit.WRONG_INPUT
    assert os.listdir(tmp_path) == ["log"]
