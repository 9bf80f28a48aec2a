"""A score follows from running a log again: what was touched is named, and has no score."""

import json
import os
import re
import subprocess
import sys
import textwrap
from typing import ClassVar

import numpy as np
import pytest
from playing import Play, calls, gold, letters, make_task, rewrite, write_log

from env_server.env import Final, Plain, ToolEnv, tool
from env_server.log import LogWriter, episodes, read
from env_server.registry import Registry
from env_server.scoring.replay import Outcome
from env_server.scoring.score import VALID_ENDS, score_episode, score_log
from env_server.scoring.summary import summarise
from env_server.validators import VALIDATORS
from railgym.v1 import episode_pb2 as pb

DOG = make_task()
REGISTRY = Registry({DOG.task_id: DOG})
BUNDLED = Registry()
TASK_ENVS = sorted({task.env_id for task in BUNDLED.tasks.values()})
INFRASTRUCTURE = ("env_error", "client_lost", "api_error", None)


class Tally(ToolEnv):
    """Counts; how, can be changed, as an environment's code may be."""

    BY: ClassVar[int] = 1
    FAILS_AT: ClassVar[int] = 1000
    ENDS_AT: ClassVar[int] = 1000

    def _begin(self):
        self.total = 0

    def state(self):
        return {"total": self.total}

    def _outcome(self, answered):
        return float(self.total), answered or self.total >= self.ENDS_AT

    @tool
    def count(self) -> int:
        """Counts on."""
        if self.total >= self.FAILS_AT:
            raise ZeroDivisionError("a bug")
        self.total += self.BY
        return self.total


@pytest.fixture(scope="module")
def tally():
    """A registry that knows the class above."""
    registry = Registry({})
    registry.add(f"{__name__}:Tally")
    return registry


@pytest.fixture
def log(tmp_path):
    """Three episodes; the second one is what gets touched."""
    path = tmp_path / "log"
    ids = write_log(path, [Play(DOG, letters("dog"))] * 3, REGISTRY)
    return path, ids


def scores_of(path, registry=REGISTRY, **how):
    return list(score_log(path, registry, **how))


def only_others_have_scores(scores, ids):
    by_id = {score.episode_id: score for score in scores}
    assert [by_id[i].success for i in ids] == [True, None, True]
    assert by_id[ids[1]].reward is None
    assert by_id[ids[1]].metrics == {}
    assert not by_id[ids[1]].valid
    return by_id[ids[1]]


@pytest.mark.parametrize("env_id", TASK_ENVS)
def test_gold_succeeds_by_the_shortest_way_and_idleness_fails(env_id, tmp_path):
    tasks = [task for task in BUNDLED.tasks.values() if task.env_id == env_id][::4]
    plays = [Play(task, gold(task, BUNDLED), {"agent": "oracle"}) for task in tasks]
    plays += [Play(task, [Final("")], {"agent": "idle"}) for task in tasks]
    write_log(tmp_path, plays, BUNDLED)
    idle, oracle = (group.total for group in summarise(score_log(tmp_path, BUNDLED)).groups)
    assert (oracle.success.mean, oracle.mean("step_ratio")) == (1, 1)
    assert (oracle.mean("trajectory"), oracle.first_faults, oracle.recovered) == (1, {}, {})
    assert (idle.success.mean, idle.first_faults) == (0, {"selection": len(tasks)})


def test_a_log_gives_the_same_scores_again_and_in_a_process_without_network_or_key(log):
    code = """
        import json, socket, sys
        from pathlib import Path

        class NoSocket:
            def __init__(self, *_, **__):
                raise AssertionError("a socket was opened")

        socket.socket = NoSocket
        socket.create_connection = NoSocket

        from env_server.registry import Registry
        from env_server.scoring.report import write_report
        from env_server.scoring.score import score_log
        from env_server.scoring.summary import summarise
        from env_server.tasks import Task

        task = Task.model_validate_json(sys.argv[2])
        summary = summarise(score_log(Path(sys.argv[1]), Registry({task.task_id: task})))
        write_report(summary, Path(sys.argv[1]) / "report.html", "offline")
        print(json.dumps([score.to_json() for score in summary.episodes]))
    """
    path, _ = log
    command = [sys.executable, "-c", textwrap.dedent(code), str(path), DOG.row()]
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(command, capture_output=True, text=True, env=kept, timeout=60)
    assert done.returncode == 0, done.stderr
    here = [score.to_json() for score in scores_of(path)]
    assert here == [score.to_json() for score in scores_of(path)]
    assert json.loads(done.stdout) == json.loads(json.dumps(here))


def test_a_flipped_byte_is_named_by_its_place(log):
    path, ids = log
    [segment] = path.iterdir()
    records = [r for r in read(path) if r.event.episode_id == ids[1]]
    data = segment.read_bytes()
    for record in records:
        for offset in (record.offset, record.offset + 5, record.offset + 20):
            touched = bytearray(data)
            touched[offset] ^= 0x10
            segment.write_bytes(touched)
            score = only_others_have_scores(scores_of(path), ids)
            assert score.outcome == Outcome.UNREPLAYABLE
            assert f"{segment}:{record.offset}" in score.detail


def twice(event):
    return [event, event]


def dropped(event):
    return []


def rewarded(event):
    event.step_taken.transition.reward = 1.0
    return [event]


def step_two_of(episode_id, change):
    """A change of one step, for `rewrite`; all else stays."""

    def apply(event):
        hit = event.episode_id == episode_id and event.step_taken.step == 2
        return change(event) if hit else [event]

    return apply


@pytest.mark.parametrize("change", [twice, dropped, rewarded])
def test_a_step_that_was_touched_is_named_by_its_place(change, log, tmp_path):
    path, ids = log
    apply = step_two_of(ids[1], change)
    payloads = [e.SerializeToString() for record in read(path) for e in apply(record.event)]
    with LogWriter(tmp_path / "touched") as writer:
        writer.append(payloads)
    score = only_others_have_scores(scores_of(tmp_path / "touched"), ids)
    assert (score.outcome, score.step) == (Outcome.UNREPLAYABLE, 2)
    assert re.search(rf"{tmp_path}/touched/\S+\.rgl:\d+: ", score.detail)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (twice, Outcome.UNREPLAYABLE),
        (dropped, Outcome.UNREPLAYABLE),
        (rewarded, Outcome.DIVERGED),
    ],
)
def test_a_step_that_was_touched_by_one_who_mends_the_chain_is_named(
    change, outcome, log, tmp_path
):
    path, ids = log
    forged = rewrite(path, step_two_of(ids[1], change), tmp_path / "forged")
    score = only_others_have_scores(scores_of(forged), ids)
    assert (score.outcome, score.step) == (outcome, 2)


def test_a_step_that_was_cut_out_and_closed_up_diverges(log, tmp_path):
    def close_up(event):
        if event.episode_id != ids[1] or event.step_taken.step < 2:
            return [event]
        event.step_taken.step -= 1
        return [event] if event.step_taken.step > 1 else []

    path, ids = log
    score = only_others_have_scores(scores_of(rewrite(path, close_up, tmp_path / "forged")), ids)
    assert (score.outcome, score.step) == (Outcome.DIVERGED, 2)
    assert score.detail.startswith("observation: recorded ")


def seen(**transition):
    return pb.StepTaken(transition=pb.Transition(**transition))


OTHER_STATE = b"?" * 32
OTHER_TEXT = pb.Observation(json="{}")
OTHER_CALL = pb.Action(tool_call=pb.ToolCall(arguments_json='{"letter": "t"}'))

FORGERIES = [
    (0, pb.EpisodeStarted(observation=OTHER_TEXT), "observation"),
    (0, pb.EpisodeStarted(info={"fault": {"text": "refusal"}}), "info"),
    (0, pb.EpisodeStarted(state_hash=OTHER_STATE), "state_hash"),
    (0, pb.EpisodeStarted(tools_sha256="0" * 64), "tools_sha256"),
    (3, pb.StepTaken(action=OTHER_CALL), "observation"),
    (2, seen(observation=OTHER_TEXT), "observation"),
    (1, seen(reward=0.5), "reward"),
    (2, seen(terminated=True), "terminated"),
    (3, seen(truncated=True), "truncated"),
    (3, seen(info={"fault": {"text": "tool_error"}}), "info"),
    (1, seen(state_hash=OTHER_STATE), "state_hash"),
    (4, seen(end_reason="END_REASON_GOAL"), "end_reason"),
    (4, pb.EpisodeEnded(reason="END_REASON_CLIENT_CLOSED"), "end_reason"),
    (4, pb.EpisodeEnded(state_hash=OTHER_STATE), "state_hash"),
]


@pytest.mark.parametrize(("step", "forgery", "field"), FORGERIES)
def test_no_field_can_be_forged(step, forgery, field, log, tmp_path):
    def forge(event):
        record = getattr(event, event.WhichOneof("kind"))
        right_step = not isinstance(record, pb.StepTaken) or record.step == step
        if event.episode_id == ids[1] and isinstance(record, type(forgery)) and right_step:
            record.MergeFrom(forgery)
        return [event]

    path, ids = log
    score = only_others_have_scores(scores_of(rewrite(path, forge, tmp_path / "forged")), ids)
    assert (score.outcome, score.step, score.invalid_reason) == ("DIVERGED", step, "diverged")
    assert re.match(rf"{field}: recorded .+, recomputed ", score.detail)


@pytest.mark.parametrize("end", ["goal", "final", "max_steps"])
def test_an_end_that_is_only_claimed_diverges(end, tmp_path):
    write_log(tmp_path, [Play(DOG, letters("do", None), end=end)], REGISTRY)
    [score] = scores_of(tmp_path)
    assert (score.outcome, score.step) == (Outcome.DIVERGED, 2)
    assert score.detail == f"end_reason: recorded {end}, recomputed none"


def test_a_changed_environment_diverges_and_can_be_scored_with_a_label(
    tally, tmp_path, monkeypatch
):
    env_id = f"{__name__}:Tally"
    write_log(tmp_path, [Play(None, calls("count", "count"), env_id=env_id)], tally)
    [before] = scores_of(tmp_path, tally)
    assert (before.outcome, before.reward, before.drifted) == (Outcome.VERIFIED, 5.0, False)
    monkeypatch.setattr(Tally, "BY", 10)
    [refused] = scores_of(tmp_path, tally)
    assert (refused.outcome, refused.step, refused.reward) == (Outcome.DIVERGED, 1, None)
    assert refused.detail == 'observation: recorded {"result":1}, recomputed {"result":10}'
    [labelled] = scores_of(tmp_path, tally, drift="label")
    assert (labelled.outcome, labelled.step, labelled.reward) == (Outcome.DIVERGED, 1, 50.0)
    assert labelled.valid
    assert labelled.drifted
    assert summarise([labelled]).groups[0].total.drifted == 1


def test_drift_is_followed_as_far_as_the_recomputed_episode_goes(tally, tmp_path, monkeypatch):
    env_id = f"{__name__}:Tally"
    monkeypatch.setattr(Tally, "ENDS_AT", 3)
    write_log(tmp_path, [Play(None, calls(*["count"] * 3, final=None), env_id=env_id)], tally)
    monkeypatch.setattr(Tally, "BY", 2)
    [sooner] = scores_of(tmp_path, tally, drift="label")
    assert (sooner.valid, sooner.steps, sooner.reward) == (True, 2, 6.0)
    monkeypatch.setattr(Tally, "ENDS_AT", 100)
    [later] = scores_of(tmp_path, tally, drift="label")
    assert (later.valid, later.invalid_reason, later.reward) == (False, "unfinished", None)


def test_a_changed_task_cannot_be_replayed(log):
    path, _ = log
    changed = make_task(max_steps=9)
    for score in scores_of(path, Registry({changed.task_id: changed})):
        assert score.outcome == Outcome.UNREPLAYABLE
        assert score.detail.startswith("task test/dog has changed: recorded ")
    for score in scores_of(path, Registry({})):
        assert score.detail.startswith("no task 'test/dog'")


def test_what_an_environment_raises_in_a_replay_is_not_the_agents_fault(
    tally, tmp_path, monkeypatch
):
    env_id = f"{__name__}:Tally"
    plays = [Play(None, calls(*["count"] * n), env_id=env_id) for n in (1, 3, 1)]
    ids = write_log(tmp_path, plays, tally)
    monkeypatch.setattr(Tally, "FAILS_AT", 2)
    scores = {score.episode_id: score for score in scores_of(tmp_path, tally)}
    assert [scores[i].reward for i in ids] == [2.0, None, 2.0]
    broken = scores[ids[1]]
    assert (broken.outcome, broken.valid) == (Outcome.UNREPLAYABLE, False)
    assert (broken.step, broken.detail) == (2, "ZeroDivisionError after step 2")


def test_what_a_validator_raises_is_not_the_agents_fault(log, monkeypatch):
    path, _ = log
    monkeypatch.setitem(VALIDATORS, "state_equals", lambda ending, field: 1 / 0)
    for score in scores_of(path):
        assert (score.valid, score.reward, score.success) == (False, None, None)
        assert score.detail == "ZeroDivisionError after step 3"


@pytest.mark.parametrize("end", [*INFRASTRUCTURE, *sorted(VALID_ENDS - {"goal", "final"})])
def test_what_is_not_the_agents_fault_is_left_out_and_counted(end, tmp_path):
    stopped = letters("abcdefgh" if end == "max_steps" else "do", None)
    fault = "ValueError" if end == "env_error" else ""
    plays = [Play(DOG, letters("dog")), Play(DOG, stopped, end=end, fault=fault)]
    write_log(tmp_path, plays, REGISTRY)
    first, second = scores_of(tmp_path)
    row = summarise([first, second]).groups[0].total
    assert second.outcome == Outcome.VERIFIED
    if end in INFRASTRUCTURE:
        reason = end or "unfinished"
        assert (second.valid, second.success, second.reward) == (False, None, None)
        assert (row.valid, row.episodes, row.invalid) == (1, 2, {reason: 1})
        assert (row.success.mean, row.worst, row.best) == (1, 0.5, 1)
        assert row.mean("total_reward") == 1
    else:
        assert (second.valid, second.success, second.reward) == (True, False, 0)
        assert (row.success.mean, row.worst, row.best, row.invalid) == (0.5, 0.5, 0.5, {})


def test_plain_environments_have_a_reward_and_no_success(tmp_path):
    keys = [Plain(np.int64(ord(letter) - ord("a"))) for letter in "cat"]
    play = Play(None, keys, env_id="railgym/TypewriterPolicy-v1", options={"target": "cat"})
    write_log(tmp_path, [play], BUNDLED)
    [score] = scores_of(tmp_path, BUNDLED)
    assert (score.outcome, score.end_reason) == (Outcome.VERIFIED, "goal")
    assert (score.success, score.reward, score.first_fault) == (None, 1.0, None)
    assert score.metrics["steps"] == 3


def test_a_task_cannot_be_made_easier_by_other_options(tmp_path):
    write_log(tmp_path / "log", [Play(DOG, letters("dog"))], REGISTRY)

    def ease(event):
        if event.WhichOneof("kind") == "episode_started":
            event.episode_started.options_json = '{"finish":"final","target":"d"}'
        return [event]

    [score] = scores_of(rewrite(tmp_path / "log", ease, tmp_path / "eased"))
    assert score.outcome == Outcome.UNREPLAYABLE
    assert "option 'target'" in score.detail


def test_one_episode_can_be_scored_by_itself(log):
    path, _ = log
    assert [score_episode(logged, REGISTRY) for logged in episodes(path)] == scores_of(path)
