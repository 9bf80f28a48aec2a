"""What agents claim to have used: counted as said, and no judge of anything."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import Play, letters, make_task, write_log

import railgym
from env_server.arguments import canonical_json
from env_server.cli.score import scores_of_server
from env_server.log import episodes
from env_server.registry import Registry
from env_server.scoring import claims
from env_server.scoring.attempts import split
from env_server.scoring.claims import add, read_claims
from env_server.scoring.episode_table import COLUMNS, episode_row, write_episodes
from env_server.scoring.replay import Outcome
from env_server.scoring.saved import NoScores, read_scores
from env_server.scoring.score import EpisodeScore, Scorer, score_log
from env_server.scoring.summary import summarise, write_scores
from railgym.actions import call
from railgym.v1 import episode_pb2 as pb

DOG = make_task()
REGISTRY = Registry({DOG.task_id: DOG})
MODEL = "claude-opus-4-5-20251101"
USAGE = {
    "input": 10,
    "cache_read": 9000,
    "cache_write_5m": 1000,
    "cache_write_1h": 0,
    "output": 50,
    "reasoning": 20,
}


def claim(turn=1, usage=USAGE, **more):
    return {
        "kind": "model_call",
        "turn": turn,
        "provider": "anthropic",
        "api": "messages",
        "model": "claude-opus-4-5",
        "answered_by": MODEL,
        "parameters": {"temperature": 0.5},
        "usage": usage,
        "latency_ms": 800.0,
        "queue_ms": 0.0,
        "retries": [],
        "stop": "tool_use",
        "error": None,
        **more,
    }


def read(*contents):
    return read_claims(pb.AgentClaim(claim_json=json.dumps(content)) for content in contents)


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    path = tmp_path_factory.mktemp("claims") / "log"
    write_log(path, [Play(DOG, letters("dig"), {"agent": "a", "run": "r"})], REGISTRY)
    [found] = episodes(path)
    return found


def scored(logged, texts):
    logged.claims = [pb.AgentClaim(claim_json=text) for text in texts]
    return Scorer(REGISTRY).score(logged)


def test_disjoint_buckets_add_up_over_calls_and_over_tries_that_were_billed():
    cut = {"status": None, "error": "cut", "waited_ms": 1000.0, "usage": {"input": 7, "output": 3}}
    refused = {"status": 429, "error": "rate_limit_error", "waited_ms": 7000.0, "usage": None}
    found = read(claim(1), claim(2, retries=[refused, refused, refused, cut], queue_ms=22_000.0))
    assert found.metrics == {
        "turns": 2,
        "model_calls": 2,
        "retries": 4,
        "total_tokens": 2 * 10_060 + 10,
        "tokens/input": 27,
        "tokens/cache_read": 18_000,
        "tokens/cache_write_5m": 2_000,
        "tokens/cache_write_1h": 0,
        "tokens/output": 103,
        "tokens/reasoning": 40,
        "latency_ms": 1600,
        "queue_ms": 22_000,
    }
    [usage] = found.models
    assert (usage.provider, usage.model, usage.calls, usage.unmetered) == ("anthropic", MODEL, 2, 0)
    assert (usage.smallest_prompt, usage.largest_prompt) == (7, 10_010)
    assert [call.largest_prompt for call in found.calls] == [10_010, 10_010]
    assert add(found.calls) == usage
    assert found.temperature == 0.5


def test_three_calls_in_one_answer_are_one_turn_and_one_call():
    assert read(claim(1), claim(2), claim(2)).metrics["turns"] == 2
    assert read({"kind": "model_call"}, {"kind": "model_call"}).metrics["turns"] == 2


def test_what_was_not_said_is_absent_and_not_zero():
    assert read() == ([], {}, None, [])
    assert read({"kind": "note", "usage": USAGE}) == ([], {}, None, [])
    local = read(claim(usage={"input": 5, "cache_read": None, "output": 2}))
    assert local.metrics["total_tokens"] == 7
    assert not {"tokens/cache_read", "tokens/reasoning"} & set(local.metrics)
    silent = read({"kind": "model_call", "turn": 1})
    assert silent.metrics == {"turns": 1, "model_calls": 1, "retries": 0}
    assert (silent.models[0].unmetered, silent.temperature) == (1, None)


def test_tokens_are_only_told_where_every_answer_told_of_them():
    for usage in (None, {}, {"input": 5}, {"input": 5, "output": None}):
        found = read(claim(1), claim(2, usage=usage))
        assert not [name for name in found.metrics if "token" in name]
        assert found.metrics["model_calls"] == 2


def test_a_call_without_an_answer_takes_no_turn_and_hides_no_tokens():
    failed = claim(2, usage=None, error={"status": 529, "type": "overloaded", "message": "!"})
    found = read(claim(1), failed)
    assert (found.metrics["turns"], found.metrics["model_calls"]) == (1, 2)
    assert found.metrics["total_tokens"] == 10_060
    assert found.models[0].calls == 1


def test_a_temperature_is_told_where_all_calls_agree():
    assert read(claim(), claim(2, parameters={"temperature": 1})).temperature is None
    assert read(claim(parameters={"temperature": 0})).temperature == 0
    assert read(claim(parameters={})).temperature is None


HOSTILE = [
    "",
    "null",
    "[]",
    "{",
    "[" * 100_000,
    '{"kind": "model_call", "kind": "model_call"}',
    '{"kind": "model_call", "usage": {"input": NaN}}',
    '{"kind": "model_call", "usage": {"input": 1e400}}',
    '{"kind": "model_call", "usage": {"input": ' + "9" * 5_000 + "}}",
    '{"kind": ["model_call"]}',
    canonical_json(claim(usage=dict.fromkeys(USAGE, -5))),
    canonical_json(claim(usage=dict.fromkeys(USAGE, True))),
    canonical_json(claim(usage=dict.fromkeys(USAGE, 0.5))),
    canonical_json(claim(usage=dict.fromkeys(USAGE, 10**900))),
    canonical_json(claim(usage=[1, 2], retries={"usage": 3}, parameters="hot", error=0)),
    canonical_json(claim(retries=[None, 1, {"usage": "all"}], latency_ms=-1, queue_ms="long")),
    canonical_json(claim(answered_by="\ud800" * 300, provider="\x1b[31m", model=7)),
    canonical_json(claim(answered_by="__import__('os').system('true')", provider="${HOME}")),
    canonical_json(claim(success=1, reward=1, metrics={"success": 1}, valid=True)),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_claim_is_data_and_can_be_written_anywhere(text, logged, tmp_path):
    score = scored(logged, [text, canonical_json(claim())])
    assert_judged_as_before(score, logged)
    write_scores(summarise([score]), tmp_path / "scores.json")
    assert read_scores(tmp_path / "scores.json") == [score]
    for usage in score.models:
        usage.model.encode()
        assert 0 <= min(usage[2:]) <= max(usage[2:]) <= 2**53


KEYS = [*claim(), *USAGE, "temperature", "success", "reward", "kind"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("kind"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=12,
)
CLAIMS = st.dictionaries(st.sampled_from(KEYS), VALUES).map(lambda c: {**c, "kind": "model_call"})


@given(texts=st.lists(st.text(max_size=20) | CLAIMS.map(json.dumps), max_size=4))
@settings(deadline=None, max_examples=100)
def test_no_claim_raises_or_moves_a_judgement(logged, texts):
    score = scored(logged, texts)
    assert_judged_as_before(score, logged)
    assert all(math.isfinite(value) and value >= 0 for value in score.metrics.values())


def assert_judged_as_before(score, logged):
    without = scored(logged, [])
    assert (without.success, without.metrics["steps"]) == (False, 4)
    kept = {name: value for name, value in score.metrics.items() if name not in claims.METRICS}
    assert without == score._replace(
        metrics=kept, models=[], temperature=None, price_source=without.price_source
    )


def test_an_episode_that_is_not_valid_has_used_what_it_used(tmp_path):
    play = Play(DOG, letters("d", None), {"agent": "a"}, end="api_error", claims=[claim()])
    write_log(tmp_path, [play], REGISTRY)
    [score] = score_log(tmp_path, REGISTRY)
    assert (score.valid, score.success, score.metrics["total_tokens"]) == (False, None, 10_060)
    row = summarise([score]).groups[0].total
    assert (row.metrics, row.tokens_per_success) == ({}, None)
    assert row.spent_usd == pytest.approx(0.01205)


def test_what_a_superseded_attempt_cost_was_spent_all_the_same(tmp_path):
    tries = [attempt("d", "api_error"), attempt("dog")]
    write_log(tmp_path, [t._replace(claims=[claim()]) for t in tries], REGISTRY)
    [group] = summarise(score_log(tmp_path, REGISTRY)).groups
    for row in (group.total, *group.levels):
        assert (row.episodes, row.superseded) == (1, 1)
        assert row.spent_usd == pytest.approx(2 * 0.01205)
        assert row.cost_per_success == pytest.approx(0.01205)


def test_a_row_tells_the_middle_the_spread_and_the_share_of_each_success(tmp_path):
    plays = [
        Play(DOG, letters(text), {"agent": "a"}, claims=[claim(usage={"input": n, "output": 0})])
        for text, n in (("dog", 100), ("cat", 200), ("dog", 600))
    ]
    write_log(tmp_path, plays, REGISTRY)
    row = summarise(score_log(tmp_path, REGISTRY)).groups[0].total
    tokens = row.metrics["total_tokens"]
    assert (tokens.n, tokens.median, tokens.lowest, tokens.highest) == (3, 200, 100, 600)
    assert tokens.deviation == pytest.approx(264.575, abs=1e-3)
    assert row.tokens_per_success == 450
    assert row.cost_per_success == pytest.approx(900 * 5e-6 / 2)
    assert row.median("steps") == 4


def attempt(text, end=None, key="k", trial="1", **labels):
    return Play(
        DOG,
        letters(text, "" if end is None else None),
        dict({"agent": "a", "run": "r", "trial": trial, "key": key}, **labels),
        end=end,
    )


def attempts_of(tmp_path, *plays):
    write_log(tmp_path, plays, REGISTRY)
    return list(score_log(tmp_path, REGISTRY))


def test_of_the_attempts_at_a_trial_the_first_valid_one_counts(tmp_path):
    scores = attempts_of(
        tmp_path,
        attempt("d", "api_error"),
        attempt("cat"),
        attempt("dog"),
        attempt("d", "client_lost", key="k2", trial="2"),
        attempt("do", "api_error", key="k2", trial="2"),
    )
    current, superseded = split(scores)
    assert current == [scores[1], scores[4]]
    assert [(s.invalid_reason, s.detail) for s in superseded] == [
        ("superseded", "api_error"),
        ("superseded", ""),
        ("superseded", "client_lost"),
    ]
    row = summarise(scores).groups[0].total
    assert (row.episodes, row.valid, row.superseded) == (2, 1, 3)
    assert (row.success.held, row.success.n, row.invalid) == (0, 1, {"api_error": 1})
    assert (row.worst, row.best) == (0, 0.5)


def test_what_was_tried_with_another_key_is_superseded_by_the_latest(tmp_path):
    scores = attempts_of(
        tmp_path, attempt("dog", key="old"), attempt("cat", key="new"), attempt("dog", run="other")
    )
    current, _ = split(scores)
    assert current == scores[1:]
    assert split(scores[:1] + scores).current == scores[1:]


def test_what_was_superseded_stays_so_when_scores_are_read_again(tmp_path):
    scores = attempts_of(
        tmp_path, attempt("d", "api_error"), attempt("dog"), attempt("cat"), attempt("cat", key="x")
    )
    summary = summarise(scores)
    write_scores(summary, tmp_path / "scores.json")
    again = summarise(read_scores(tmp_path / "scores.json"))
    assert again == summary
    assert len(again.superseded) == 3


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"episodes": [1]}', '{"episodes": [{}]}'])
def test_what_is_no_scores_json_is_refused_by_its_place(text, tmp_path):
    path = tmp_path / "scores.json"
    with pytest.raises(NoScores, match=f"{path}: No such file"):
        read_scores(path)
    path.write_text(text)
    with pytest.raises(NoScores, match=f"as Railgym writes it at {path}, got "):
        read_scores(path)


def test_the_table_of_episodes_has_every_field(tmp_path):
    labels = {"agent": "a\u2028", "run": "r", "trial": "2"}
    plays = [
        Play(DOG, letters("dog"), labels, claims=[claim(1), claim(2)]),
        Play(DOG, letters("dig", None), labels, end="time_limit"),
        Play(DOG, letters("d", None), labels, end="api_error"),
        Play(DOG, [*letters("", None), *letters("cat")], {}),
    ]
    write_log(tmp_path / "log", plays, REGISTRY)
    scores = list(score_log(tmp_path / "log", REGISTRY))
    write_episodes(scores, tmp_path / "episodes.jsonl")
    lines = (tmp_path / "episodes.jsonl").read_text("ascii").splitlines()
    first, limit, broken, wrong = map(json.loads, lines)
    assert tuple(first) == COLUMNS
    assert first == {
        "episode_id": scores[0].episode_id,
        "task_id": "test/dog",
        "env_id": "railgym/Typewriter-v1",
        "level": "L2",
        "agent": "a\u2028",
        "model": MODEL,
        "temperature": 0.5,
        "run_id": "r",
        "trial": "2",
        "success": True,
        "valid": True,
        "invalid_reason": None,
        "error_type": None,
        "first_fault": None,
        "step_count": 4,
        "tool_used": ["type_letter"],
        "total_tokens": 20_120,
        "cost_usd": pytest.approx(0.0241),
        "latency_ms": 1600.0,
        "trace_path": f"log#{scores[0].episode_id}",
    }
    assert (limit["success"], limit["error_type"]) == (False, "time_limit")
    assert (limit["cost_usd"], limit["total_tokens"], limit["model"]) == (None, None, None)
    assert (broken["success"], broken["valid"], broken["error_type"]) == (None, False, "api_error")
    assert (wrong["error_type"], wrong["run_id"]) == ("state_equals", None)


def test_the_first_fault_code_is_the_error_of_an_episode_that_failed(tmp_path):
    wrong = [*letters("x", None), railgym.ToolCall("no_such_tool"), *letters("og")]
    write_log(tmp_path, [Play(DOG, wrong), Play(DOG, [wrong[1], *letters("dog")])], REGISTRY)
    failed, mended = map(episode_row, score_log(tmp_path, REGISTRY))
    assert (failed["error_type"], failed["success"]) == ("unknown_tool", False)
    assert (mended["error_type"], mended["success"]) == (None, True)
    assert mended["tool_used"] == ["no_such_tool", "type_letter"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"verdict": {"state_equals": True, "answer_yes_no": False}}, "wrong_answer"),
        ({"verdict": {"required_fields": False}}, "wrong_answer"),
        ({"verdict": {"must_call": False, "answer_set": True}}, "must_call"),
        ({"verdict": {"answer_set": False}, "fault": "tool_error"}, "tool_error"),
        ({"verdict": {"answer_set": False}, "end_reason": "max_steps"}, "max_steps"),
        ({"verdict": {"answer_set": True}, "success": True, "fault": "tool_error"}, None),
        ({"invalid_reason": "diverged", "valid": False, "success": None}, "diverged"),
        ({"success": None}, None),
    ],
)
def test_the_error_of_an_episode_is_one_word(changes, error):
    failed = {"end_reason": "final", "valid": True, "success": False, **changes}
    score = EpisodeScore("s.1", "e", "t", "L1", {}, Outcome.VERIFIED, **failed)
    assert episode_row(score)["error_type"] == error


def test_sums_without_a_value_leave_json_that_every_parser_reads(tmp_path):
    sums = [("log", {"a": 0, "base": 10}), ("divide", {"a": 1, "b": 0}), ("power", None)]
    actions = [call(name, **(given or {"a": -8, "b": 0.5})) for name, given in sums]
    play = Play(None, [*actions, railgym.Final("NaN")], env_id="railgym/MultiverseMath-v1")
    registry = Registry({})
    write_log(tmp_path / "log", [play], registry)
    [score] = score_log(tmp_path / "log", registry)
    assert (score.fault, score.metrics["faults/tool_error"]) == ("tool_error", 3)
    write_episodes([score], tmp_path / "episodes.jsonl")
    write_scores(summarise([score]), tmp_path / "scores.json")
    for name in ("episodes.jsonl", "scores.json"):
        json.loads((tmp_path / name).read_text("ascii"), parse_constant=pytest.fail)
    nan = score._replace(metrics={"cost_usd": math.nan})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_episodes([nan], tmp_path / "nan.jsonl")


def test_a_server_gives_the_same_scores_as_its_log(server):
    with railgym.connect(server.address) as client:
        for trial, reason in (("1", None), ("2", "api_error")):
            labels = {"agent": "remote", "run": "same-numbers", "trial": trial}
            task = "typewriter/reference/dog"
            with client.session(task_id=task, labels=labels) as session:
                session.reset(seed=1)
                session.claim(claim(retries=[{"status": 429, "usage": {"input": 1}}]))
                session.call("nothing")
                session.call("type_letter", letter="d")
                session.close(reason)
        remote = scores_of_server(client, "same-numbers")
    local = {score.episode_id: score for score in score_log(server.log_dir, server.registry)}
    assert len(remote) == 2
    for score in remote:
        assert score == local[score.episode_id]
        assert score.metrics["cost_usd"] == pytest.approx(0.012055)
        assert score.task_sha256 == server.registry.task("typewriter/reference/dog").sha256
