"""A run that is killed, again and again, comes to the same episodes as one that is not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from env_server.cli.exits import Exit
from env_server.log import episodes as logged_episodes
from railgym.v1 import episode_pb2 as pb

KILLS = 20
PAUSE = 0.08
"""Seconds that the agent takes for each step while the run is being killed."""

AGENT = """
import os, time
from railgym.agents import random

def slow(briefing):
    policy = random(briefing)

    def act(seen):
        time.sleep(float(os.environ["PAUSE"]))
        return policy(seen)

    return act
"""

OWN_ENDS = (pb.END_REASON_FINAL, pb.END_REASON_GOAL, pb.END_REASON_MAX_STEPS)

REQUEST = ["--agent", "mine:slow", "--agent", "random", "--agent", "oracle", "--repeats", "8"]
REQUEST += ["--env", "railgym/Typewriter-v1", "--env", "railgym/MultiverseMath-v1"]
REQUEST += ["--level", "L1", "--limit", "4", "--concurrency", "4"]
TRIALS = 3 * 8 * 2 * 4


@pytest.fixture
def home(tmp_path):
    (tmp_path / "mine.py").write_text(AGENT)
    return tmp_path


def start(home, pause):
    return subprocess.Popen(
        [sys.executable, "-m", "env_server.cli", "run", *REQUEST, "--json"],
        cwd=home,
        env={**os.environ, "PAUSE": str(pause)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(home):
    """The same command, this time to its end."""
    process = start(home, 0)
    stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == Exit.OK, stderr
    return json.loads(stdout)


def folder_of(home):
    (folder,) = (home / "runs").iterdir()
    return folder


def children(process):
    """The processes that it started: its server."""
    return [
        int(pid)
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def what_was_played(folder):
    """By agent, task and trial, the actions and rewards of the episode that counts."""
    scores = json.loads((folder / "scores.json").read_text())["episodes"]
    logged = {e.episode_id: e for e in logged_episodes(folder / "log")}
    found = {}
    for score in scores:
        labels, steps = score["labels"], logged[score["episode_id"]].steps
        trial = labels["agent"], score["task_id"], labels["trial"]
        assert score["valid"]
        assert trial not in found, "expected each trial once"
        found[trial] = [(s.action.SerializeToString(), s.transition.reward) for s in steps]
    return found


def finished(folder):
    """How often each trial was played to its end, by key."""
    whole = (e for e in logged_episodes(folder / "log") if e.ended and e.problem is None)
    return Counter(e.started.labels["key"] for e in whole if e.ended.reason in OWN_ENDS)


def segments(home):
    """The files of the log: each server begins one."""
    return list(home.glob("runs/*/log/*.rgl"))


def await_server(process, home, before):
    """Waits until a server has begun to write to the log."""
    deadline = time.monotonic() + 60
    while process.poll() is None and len(segments(home)) == len(before):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.timeout(900)
def test_a_run_that_is_killed_twenty_times_loses_nothing_and_plays_nothing_twice(home):
    whole = home / "whole"
    whole.mkdir()
    (whole / "mine.py").write_text(AGENT)
    finish(whole)
    expected = what_was_played(folder_of(whole))
    assert len(expected) == TRIALS

    moments, servers, done = random.Random(4), [], [0]
    for kill in range(KILLS):
        before = segments(home)
        process = start(home, PAUSE)
        if kill % 4:
            await_server(process, home, before)
            time.sleep(moments.uniform(0, 1))
        else:
            time.sleep(moments.uniform(0, 2))
        own = children(process)
        servers += own
        for pid in [process.pid, *own] if kill % 5 == 1 else [process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=30)
        if segments(home):
            done.append(finished(folder_of(home)).total())
    assert done == sorted(done), "expected nothing to be lost"
    assert sum(0 < count < TRIALS for count in done) >= KILLS / 2, "expected kills amid the run"

    last = finish(home)
    assert last["reused_trials"] >= done[-1]
    assert what_was_played(folder_of(home)) == expected
    assert set(finished(folder_of(home)).values()) == {1}, "expected each trial to be played once"
    deadline = time.monotonic() + 30
    while any(map(is_alive, servers)):
        assert time.monotonic() < deadline, "expected a server to end when its run is killed"
        time.sleep(0.1)


def test_a_run_whose_server_is_killed_says_so_and_goes_on_the_next_time(home):
    process = start(home, PAUSE)
    await_server(process, home, [])
    time.sleep(1)
    (server,) = children(process)
    os.kill(server, signal.SIGKILL)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == Exit.NO_SERVER
    assert "the same command goes on" in stderr
    assert "Traceback" not in stderr
    count = finished(folder_of(home)).total()
    assert 0 < count < TRIALS
    assert finish(home)["reused_trials"] == count
    assert len(what_was_played(folder_of(home))) == TRIALS
