"""Logs of every version so far replay to the bit. See tests/golden/make.py."""

from collections import Counter
from pathlib import Path

import pytest

from env_server.envs import ENVS
from env_server.log import episodes
from env_server.registry import Registry
from env_server.scoring.replay import Outcome
from env_server.scoring.score import score_episode
from railgym._version import __version__
from railgym.v1 import episode_pb2 as pb

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if any(path.glob("*.rgl")))

REGISTRY = Registry()
CARTPOLE = REGISTRY.add("CartPole-v1")


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_logs_replay(version):
    outcomes = Counter()
    for logged in episodes(GOLDEN / version):
        if logged.started.env_version not in (CARTPOLE.version, f"railgym {version}"):
            continue  # what another Gymnasium makes of its CartPole is not ours to keep
        score = score_episode(logged, REGISTRY)
        assert score.outcome is Outcome.VERIFIED, f"{score.episode_id}: {score.detail}"
        outcomes[score.env_id] += 1
    assert outcomes.total() > 20


def test_this_version_has_golden_logs_of_everything():
    found = list(episodes(GOLDEN / __version__))
    assert {logged.started.env_id for logged in found} == {*ENVS, "CartPole-v1"}
    steps = [taken for logged in found for taken in logged.steps]
    kinds = {taken.action.WhichOneof("kind") for taken in steps}
    assert kinds == {kind.name for kind in pb.Action.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert {t.transition.info["fault"].text for t in steps if "fault" in t.transition.info} == {
        "format_error",
        "unknown_tool",
        "bad_arguments",
        "tool_error",
        "truncated_output",
        "empty_response",
        "refusal",
    }
    assert {logged.started.WhichOneof("generator") for logged in found} == {
        "seed",
        "generator_state_json",
    }
    assert {logged.started.argument_rule for logged in found} == {
        pb.ARGUMENT_RULE_STRICT,
        pb.ARGUMENT_RULE_LENIENT,
    }
    assert {pb.EndReason.Name(logged.ended.reason) for logged in found} == {
        "END_REASON_FINAL",
        "END_REASON_GOAL",
        "END_REASON_MAX_STEPS",
        "END_REASON_CLIENT_CLOSED",
    }
    assert {logged.steps[-1].transition.reward for logged in found if logged.started.task_id} == {
        0.0,
        1.0,
    }
