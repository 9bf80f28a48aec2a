"""A short run of chaos, and that its checks see what is lost: see tests/chaos."""

import json
import subprocess
import sys
from pathlib import Path

import checks
import playing
import pytest

from env_server.log import episodes

RUN = Path(__file__).parent / "chaos" / "run.py"


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_nothing_is_lost_while_everything_breaks():
    command = [sys.executable, RUN, "--seconds", "10", "--clients", "40"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: 40 clients" in done.stdout


@pytest.fixture
def played(tmp_path, registry):
    """A log of one episode, and the journal of a client that saw all of it."""
    play = playing.Play(playing.make_task(), playing.letters("dog"))
    playing.write_log(tmp_path / "log", [play], registry)
    (logged,) = episodes(tmp_path / "log")
    journal = [
        {
            "episode": logged.episode_id,
            "step": taken.step,
            "action": taken.action.SerializeToString(deterministic=True).hex(),
            "hash": taken.transition.state_hash.hex(),
        }
        for taken in logged.steps
    ]
    return tmp_path, journal


def found(folder, journal, registry):
    path = folder / "journal.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in journal))
    return checks.check(folder / "log", [path], registry)


def test_what_was_acknowledged_is_looked_up(played, registry):
    folder, journal = played
    registry = type(registry)({"test/dog": playing.make_task()})
    assert found(folder, journal, registry).broken == []
    unseen = found(folder, journal[:-1], registry)
    assert (unseen.broken, unseen.unacknowledged) == ([], 1)
    first, *others = journal
    for wrong, why in [
        ([*journal, {**first, "step": 9}], "acknowledged, and not in the log"),
        ([*journal, first], "acknowledged twice"),
        ([{**first, "hash": "00"}, *others], "another state in the log"),
        ([{**first, "action": "00"}, *others], "another action in the log"),
    ]:
        (text,) = found(folder, wrong, registry).broken
        assert why in text


def test_a_log_that_does_not_replay_is_told(played, registry, tmp_path):
    folder, journal = played
    registry = type(registry)({"test/dog": playing.make_task(max_steps=3)})
    broken = found(folder, journal, registry).broken
    assert len(broken) == 1
    assert "task test/dog has changed" in broken[0]
