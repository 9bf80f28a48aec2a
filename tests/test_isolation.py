"""Foreign environments: what hangs, crashes or swells ends its own episode and nothing else."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import raw
from envs_for_tests import Rogue
from processes import Server

import railgym
from env_server.env import Final, Text, ToolCall
from env_server.service.limits import Limits
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2
from railgym.v1 import episode_service_pb2 as episode_service
from railgym.v1.env_service_pb2_grpc import EnvServiceStub
from railgym.v1.episode_service_pb2_grpc import EpisodeServiceStub

ROGUE, PID = "envs_for_tests:Rogue", "envs_for_tests:Pid"
LIMITS = Limits(step_seconds=3, env_bytes=512 * 1024**2)

HANGS = {"a loop": Rogue.LOOPS, "a sleep": Rogue.SLEEPS}
DEATHS = {
    "too much memory": (Rogue.SWELLS, "MemoryError"),
    "an exit": (Rogue.EXITS, "ProcessDied"),
    "a crash": (Rogue.CRASHES, "ProcessDied"),
    "a kill": (Rogue.DIES, "ProcessDied"),
    "nonsense on its connection": (Rogue.SPEAKS, "ProcessBroken"),
}


@pytest.fixture
def strict(serve):
    """A server whose environments are held to tight limits."""
    server = serve(limits=LIMITS)
    with grpc.insecure_channel(server.address) as channel:
        yield EnvServiceStub(channel), EpisodeServiceStub(channel)


def alive(pid):
    """Whether a process is there and no zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until_gone(*pids):
    deadline = time.monotonic() + 10
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.02)


def last_events(episodes, episode_id):
    request = episode_service.ReadEpisodeRequest(episode_id=episode_id)
    events = [reply.event for reply in episodes.ReadEpisode(request, timeout=raw.SECONDS)]
    return events[-2:]


def check_ended(envs, episodes, session_id, error):
    """The episode ended as one of the server's faults, is no score, and the session goes on."""
    fault, end = last_events(episodes, f"{session_id}.1")
    assert fault.server_fault.error == error
    assert end.episode_ended.reason == episode_pb2.END_REASON_ENV_ERROR
    request = episode_service.ScoreEpisodesRequest(episode_ids=[f"{session_id}.1"])
    (reply,) = episodes.ScoreEpisodes(request, timeout=raw.SECONDS)
    assert (reply.score.valid, reply.score.HasField("reward")) == (False, False)
    assert raw.reset(envs, session_id).episode == 2
    assert raw.step(envs, session_id, 1, 9).reward == 9


@pytest.mark.parametrize("action", HANGS.values(), ids=HANGS)
def test_a_step_that_does_not_end_is_cut_off(strict, action):
    envs, episodes = strict
    session_id, other, bundled = (
        raw.playing(envs, ROGUE),
        raw.playing(envs, ROGUE),
        raw.playing(envs),
    )
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        hanging = pool.submit(raw.refusal, envs.Step, raw.step_request(session_id, 1, action))
        for number in range(1, 6):
            assert raw.step(envs, other, number, 9).reward == 9
            raw.step(envs, bundled, number, raw.letter("x")) if number == 1 else None
        assert not hanging.done(), "expected the others to be quicker than the limit"
        refusal = hanging.result()
    assert time.monotonic() - began < LIMITS.step_seconds + 5
    assert (refusal.code, refusal.reason) == ("DEADLINE_EXCEEDED", "STEP_TIMED_OUT")
    assert refusal.metadata == {"session_id": session_id, "limit_seconds": "3"}
    check_ended(envs, episodes, session_id, "TimedOut")


def test_a_client_learns_that_a_step_was_cut_off(serve):
    server = serve(limits=LIMITS)
    with railgym.connect(server.address) as client, client.session(ROGUE) as session:
        session.reset(seed=1)
        with pytest.raises(railgym.StepTimedOut) as caught:
            session.step(Rogue.SLEEPS)
        assert caught.value.metadata["limit_seconds"] == "3"
        session.reset()
        assert session.step(9).reward == 9


def test_a_picture_that_does_not_end_ends_the_episode(strict):
    envs, episodes = strict
    session_id = raw.playing(envs, ROGUE)
    refusal = raw.refusal(envs.Render, pb.RenderRequest(session_id=session_id))
    assert refusal.reason == "STEP_TIMED_OUT"
    check_ended(envs, episodes, session_id, "TimedOut")


@pytest.mark.parametrize(("action", "error"), DEATHS.values(), ids=DEATHS)
def test_a_process_that_dies_costs_its_episode(strict, action, error):
    envs, episodes = strict
    session_id, other = raw.playing(envs, ROGUE), raw.playing(envs, ROGUE)
    refusal = raw.refusal(envs.Step, raw.step_request(session_id, 1, action))
    assert (refusal.code, refusal.reason) == ("INTERNAL", "ENV_ERROR")
    assert raw.step(envs, other, 1, 9).reward == 9
    check_ended(envs, episodes, session_id, error)


def test_a_process_that_dies_between_two_steps_costs_its_episode(strict):
    envs, episodes = strict
    session_id = raw.playing(envs, PID)
    pid = raw.step(envs, session_id, 1, 1).observation.value.integer
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    assert raw.refusal(envs.Step, raw.step_request(session_id, 2, 1)).reason == "ENV_ERROR"
    fault, _ = last_events(episodes, f"{session_id}.1")
    assert fault.server_fault.error == "ProcessDied"
    assert raw.reset(envs, session_id).episode == 2


def test_each_session_has_a_process_of_its_own_that_ends_with_it(strict):
    envs, _ = strict
    sessions = [raw.playing(envs, PID) for _ in range(4)]
    pids = [raw.step(envs, one, 1, 1).observation.value.integer for one in sessions]
    assert len({os.getpid(), *pids}) == 5
    raw.reset(envs, sessions[0])
    assert raw.step(envs, sessions[0], 1, 1).observation.value.integer == pids[0]
    for session_id in sessions:
        raw.close(envs, session_id)
    wait_until_gone(*pids)


def test_what_an_environment_has_started_ends_with_it(strict):
    envs, _ = strict
    session_id = raw.create(envs, "envs_for_tests:Begets")
    pid = raw.reset(envs, session_id).observation.value.integer
    assert alive(pid)
    refusal = raw.refusal(envs.Step, raw.step_request(session_id, 1, 1))
    assert refusal.reason == "STEP_TIMED_OUT"
    wait_until_gone(pid)


def test_no_process_outlives_a_server_that_is_killed(tmp_path):
    server = Server(tmp_path / "log", PID, ROGUE)
    with railgym.connect(server.address, startup_seconds=30) as client:
        idle, busy = client.session(PID), client.session(PID)
        idle.reset(seed=1)
        busy.reset(seed=1)
        pids = [int(session.step(1).observation) for session in (idle, busy)]
        looping = client.session(ROGUE)
        looping.reset(seed=1)
        group = {pid for pid in _descendants(server.process.pid) if pid != server.process.pid}
        assert set(pids) <= group
        with ThreadPoolExecutor(1) as pool:
            hanging = pool.submit(looping.step, Rogue.LOOPS)
            time.sleep(0.3)
            server.kill()
            with pytest.raises(railgym.RailgymError):
                hanging.result()
    wait_until_gone(*group)


def _descendants(pid):
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def test_copies_that_fail_leave_no_process_behind(strict):
    envs, _ = strict
    session_id = raw.playing(envs, "envs_for_tests:Chance")
    raw.step(envs, session_id, 1, 1)
    before = len(_descendants(os.getpid()))
    for _ in range(5):
        raw.refusal(envs.ForkSession, pb.ForkSessionRequest(session_id=session_id))
    deadline = time.monotonic() + 10
    while len(_descendants(os.getpid())) > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_opening_and_closing_leaves_nothing_behind(strict):
    envs, _ = strict
    raw.close(envs, raw.playing(envs, PID))
    time.sleep(0.5)
    files, processes = _held()
    for _ in range(30):
        raw.close(envs, raw.playing(envs, PID))
    deadline = time.monotonic() + 10
    while _held() > (files + 2, processes):
        assert time.monotonic() < deadline, f"{_held()} after {files, processes}"
        time.sleep(0.05)


def _held():
    return len(os.listdir("/proc/self/fd")), len(_descendants(os.getpid()))


def test_tools_of_a_user_play_the_same_as_in_process(server, envs):
    name = "envs_for_tests:Notes"
    actions = [
        ToolCall("write", '{"line": "one"}'),
        ToolCall("write", '{"line": "much too long for it"}'),
        ToolCall("nothing", "{}"),
        Text('{"thought": "", "action": "write", "action_input": {"line": "two"}}'),
        Text("no action at all"),
        Final("done"),
    ]
    here = raw.play_here(server.registry, actions, 7, name, title="t")
    session_id = raw.create(envs, name)
    raw.reset(envs, session_id, {"title": "t"}, seed=7)
    there = [raw.step(envs, session_id, n, a) for n, a in enumerate(actions, start=1)]
    assert [(t.observation.json, t.state_hash, t.terminated) for t in there] == [
        (r.transition.observation, r.state_hash, r.transition.terminated) for r in here
    ]
    bad = raw.refusal(envs.Reset, raw.reset_request(session_id, {"colour": 1}))
    assert (bad.code, bad.reason, bad.metadata["option"]) == (
        "INVALID_ARGUMENT",
        "BAD_OPTIONS",
        "colour",
    )


ZYGOTE = """
import os, sys
import env_server.service.env_child
print(len(os.listdir("/proc/self/task")), "grpc" in sys.modules)
"""


def test_what_is_forked_from_has_one_thread_and_no_grpc():
    told = subprocess.run(
        [sys.executable, "-c", ZYGOTE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert told.stdout.split() == ["1", "False"]
