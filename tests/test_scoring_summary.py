"""Statistics, and what a summary counts and leaves out."""

import io
import json
import math
import re
import statistics
import sys
from fractions import Fraction
from itertools import combinations
from math import isclose
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from playing import Play, letters, make_task, write_log
from rich.console import Console

from env_server import episode, gold, protocol, validators
from env_server.envs import orders
from env_server.registry import Registry
from env_server.scoring import metrics, replay
from env_server.scoring.fingerprint import judging_files
from env_server.scoring.prices import BUNDLED
from env_server.scoring.replay import Outcome
from env_server.scoring.report import render_report
from env_server.scoring.score import EpisodeScore, score_log
from env_server.scoring.statistics import pass_all, pass_at, passes, proportion, spread, stable
from env_server.scoring.summary import reject_duplicates, summarise, write_scores
from env_server.scoring.table import tables
from railgym.scores import ModelUsage

TRIES = st.lists(st.booleans(), max_size=7)


def scored(success, task="t", valid=True, level="L1", **labels):
    return EpisodeScore(
        episode_id=f"{task}.1",
        env_id="railgym/Typewriter-v1",
        task_id=task,
        level=level,
        labels={"agent": "a", **labels},
        outcome=Outcome.VERIFIED,
        end_reason="final" if valid else "api_error",
        valid=valid,
        invalid_reason=None if valid else "api_error",
        success=success if valid else None,
        reward=float(success) if valid else None,
        metrics={"total_reward": float(success)} if valid else {},
    )


@pytest.mark.parametrize(
    ("held", "n", "low", "high"),
    [(0, 20, 0.0, 0.161), (20, 20, 0.839, 1.0), (18, 20, 0.699, 0.972), (7, 8, 0.529, 0.978)],
)
def test_wilson_intervals_have_width_at_both_ends(held, n, low, high):
    found = proportion(held, n)
    assert found.mean == held / n
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-4)


def test_standard_error_is_that_of_a_proportion():
    assert proportion(18, 20).standard_error == pytest.approx(0.0671, abs=5e-5)


def test_nothing_to_count_gives_none_and_not_nan():
    assert set(proportion(0, 0)[2:]) == {None}
    assert set(spread([])[1:]) == {None}
    assert spread([2.0]).deviation is None
    assert spread([1.0, 2.0, 9.0]) == (3, 4.0, 2.0, pytest.approx(19**0.5), 1.0, 9.0)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
GREATEST = sys.float_info.max


@given(values=st.lists(FLOATS | st.floats(GREATEST / 4, GREATEST), min_size=1, max_size=6))
@example(values=[GREATEST] * 3)
@example(values=[GREATEST, -GREATEST])
@settings(deadline=None, max_examples=60)
def test_numbers_near_the_greatest_float_are_described_in_floats(values):
    found = spread(values)
    exact = [Fraction(value) for value in values]
    assert found.mean == pytest.approx(float(sum(exact) / len(exact)), rel=1e-12, abs=1e290)
    assert found.lowest <= found.median <= found.highest
    if len(values) > 1:
        deviation = float(statistics.variance(exact) / 2**2000) ** 0.5 * 2.0**1000
        told = math.inf if found.deviation is None else found.deviation
        assert told == pytest.approx(deviation, rel=1e-9, abs=1e290)


@pytest.mark.parametrize(("held", "n"), [(3, 2), (-1, 2)])
def test_more_than_all_is_refused(held, n):
    with pytest.raises(ValueError, match=f"expected 0 to {n} that hold, got {held}"):
        proportion(held, n)


@given(tries=TRIES, k=st.integers(1, 8))
@settings(deadline=None, max_examples=60)
def test_pass_at_and_pass_all_are_what_drawing_k_tries_gives(tries, k):
    found = pass_at(k, sum(tries), len(tries)), pass_all(k, sum(tries), len(tries))
    if k > len(tries):
        assert found == (None, None)
        return
    drawn = list(combinations(tries, k))
    assert isclose(found[0], sum(map(any, drawn)) / len(drawn))
    assert isclose(found[1], sum(map(all, drawn)) / len(drawn))


def test_tasks_without_k_valid_tries_are_left_out_and_counted():
    tries = [[True, True, False], [True]]
    assert passes(1, tries) == (1, pytest.approx(5 / 6), pytest.approx(5 / 6), 2, 2)
    assert passes(3, tries) == (3, 1, 0, 1, 2)
    assert passes(5, tries) == (5, None, None, 0, 2)
    assert stable([*tries, [True, True]])[:2] == (1, 2)


def test_half_rewards_are_no_successes():
    halves = [scored(False, trial=str(i))._replace(reward=0.5) for i in (1, 2)]
    row = summarise(halves).groups[0].total
    assert (row.success.held, row.success.n) == (0, 2)
    assert row.passes[0].at_least_one == 0


def test_what_is_not_valid_counts_neither_way_and_has_bounds():
    scores = [scored(True, trial="1"), scored(True, valid=False, trial="2"), scored(False, "u")]
    row = summarise(scores).groups[0].total
    assert (row.episodes, row.valid, row.invalid) == (3, 2, {"api_error": 1})
    assert (row.success.mean, row.worst, row.best) == (0.5, 1 / 3, 2 / 3)
    assert row.passes == []


def test_a_second_valid_try_of_one_trial_is_rejected():
    scores = [
        scored(False, trial="1"),
        scored(True, trial="1"),
        scored(True, trial="1", run="other"),
        scored(True, task="u", trial="1"),
        scored(True, valid=False, task="v", trial="1"),
        scored(True, task="v", trial="1"),
        scored(True, task="w"),
        scored(True, task="w"),
    ]
    judged = reject_duplicates(scores)
    reasons = [score.invalid_reason for score in judged]
    assert reasons == [None, "duplicate", None, None, "api_error", None, None, None]
    assert (judged[1].success, judged[1].reward, judged[1].metrics) == (None, None, {})


def test_levels_stand_beside_their_sum():
    scores = [scored(True, level="L1"), scored(False, task="u", level="L3")]
    [group] = summarise(scores).groups
    assert [(row.level, row.success.mean) for row in group.rows] == [
        ("L1", 1),
        ("L3", 0),
        ("", 0.5),
    ]


def test_what_has_no_level_is_not_taken_for_all_levels():
    scores = [scored(True), scored(True)._replace(task_id="", level="", success=None)]
    [group] = summarise(scores).groups
    assert [(row.level, row.episodes) for row in group.rows] == [("none", 1), ("L1", 1), ("", 2)]
    [alone] = summarise(scores[1:]).groups
    assert [row.level for row in alone.rows] == [""]


def test_agents_and_environments_are_kept_apart():
    scores = [scored(True), scored(False)._replace(labels={}), scored(True)._replace(env_id="e")]
    names = [(group.total.agent, group.total.env_id) for group in summarise(scores).groups]
    assert names == [("", "railgym/Typewriter-v1"), ("a", "e"), ("a", "railgym/Typewriter-v1")]


def test_langchains_means_say_their_denominators():
    theirs = "langchain/correctness"
    scores = [
        scored(True)._replace(metrics={theirs: 1.0}),
        scored(False)._replace(metrics={theirs: 0.0}),
        scored(True, valid=False),
    ]
    found = summarise(scores).groups[0].total.langchain
    assert found == {"correctness": (2, 0.5, pytest.approx(1 / 3))}


def test_scores_json_is_strict_json_and_complete(tmp_path):
    task = make_task()
    registry = Registry({task.task_id: task})
    labels = {"agent": "ä\u2028<b>", "trial": "1"}
    plays = [Play(task, letters("dog"), labels), Play(task, letters("do", None), labels)]
    write_log(tmp_path / "log", plays, registry)
    summary = summarise(score_log(tmp_path / "log", registry))
    nan = summary.episodes[0]._replace(reward=None)
    write_scores(summary._replace(episodes=[*summary.episodes, nan]), tmp_path / "scores.json")

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    found = json.loads((tmp_path / "scores.json").read_text("ascii"), parse_constant=refuse)
    assert set(found) == {"railgym", "scorer_sha256", "summary", "episodes", "superseded"}
    assert [e["invalid_reason"] for e in found["episodes"]] == [None, "unfinished", None]
    [group] = found["summary"]
    assert group["total"]["agent"] == labels["agent"]
    assert group["total"]["success"]["low"] == pytest.approx(0.2065, abs=1e-4)
    assert group["levels"][0]["metrics"]["step_ratio"]["mean"] == 1


def test_the_digest_of_the_scorer_is_of_all_that_replays_and_judges():
    modules = {replay, validators, episode, protocol, gold, orders, metrics}
    assert {Path(module.__file__) for module in modules} <= set(judging_files())
    assert BUNDLED in judging_files()


def test_more_tries_than_are_valid_say_nothing_of_so_many():
    scores = [scored(success, trial=str(i)) for i, success in enumerate((True, True))]
    summary = summarise([*scores, scored(True, valid=False, trial="9")])
    row = summary.groups[0].total
    assert [tries.all_of_them for tries in row.passes] == [1, None, None]
    assert (row.episodes, row.valid, row.worst, row.best) == (3, 2, 2 / 3, 1)
    out = io.StringIO()
    Console(file=out, width=100).print(tables(summary))
    assert out.getvalue().split("Repeats")[1].count("n/a") == 4


def test_repeats_have_a_row_for_each_level_that_was_repeated():
    levels = {"L1": (True, True), "L2": (True, False)}
    scores = [
        scored(success, task=level, level=level, trial=str(i))
        for level, tries in levels.items()
        for i, success in enumerate(tries)
    ]
    summary = summarise([*scores, scored(True, task="once", level="L3")])
    out = io.StringIO()
    Console(file=out, width=100).print(tables(summary))
    shown = out.getvalue().split("Repeats")[1]
    assert re.findall(r"(L\d|all)\b.*?(\d/\d)", shown) == [
        ("L1", "1/1"),
        ("L2", "0/1"),
        ("all", "1/2"),
    ]
    page = render_report(summary, "t").split("<h2>Repeats</h2>")[1].split("</table>")[0]
    assert re.findall(r"<td>(L\d|all)</td>", page) == ["L1", "L2", "all"]


def printed(summary, width=140):
    out = io.StringIO()
    Console(file=out, width=width).print(tables(summary))
    return out.getvalue()


LOW, HIGH = (
    f"openai:m?reasoning_effort={effort}&base_url=http://h/v1" for effort in ("low", "high")
)


def of_two_agents():
    """One agent succeeds at L1 only and is dear, the other at all levels and is cheap."""
    won = {
        LOW: {"L1": True, "L2": False, "L3": False},
        HIGH: dict.fromkeys(("L1", "L2", "L3"), True),
    }
    used = {LOW: (0.5, 20_000, 3_000), HIGH: (0.02, 900, 1_500)}
    scores = []
    for agent, levels in won.items():
        for level, success in levels.items():
            for env_id in ("railgym/Orders-v1", "railgym/Typewriter-v1"):
                cost, tokens, latency = used[agent]
                score = scored(success, f"{env_id} {level}", level=level, agent=agent)
                claimed = {"cost_usd": cost, "total_tokens": tokens, "latency_ms": latency}
                scores.append(score._replace(env_id=env_id, metrics=claimed))
    return summarise(scores)


def test_an_agent_has_one_headline_with_its_levels_side_by_side_and_the_best_is_first():
    summary = of_two_agents()
    found = [
        (g.total.agent, g.total.episodes, *(r.level for r in g.levels)) for g in summary.headlines
    ]
    assert found == [(agent, 6, "L1", "L2", "L3") for agent in (HIGH, LOW)]
    rows = printed(summary).split("Success by environment")[0].splitlines()
    high, low = (line.split() for line in rows if line.startswith(" openai:m"))
    assert high[1:] == [
        "reasoning_effort=high",
        *["1.00"] * 4,
        "0.61",
        "to",
        "1.00",
        "6/6",
        "0.02",
        "900",
        "1.5",
    ]
    assert low[1:6] == ["reasoning_effort=low", "1.00", "0.00", "0.00", "0.33"]
    assert low[-3:] == ["0.5", "20k", "3.0"]
    page = render_report(summary, "t").split("<h2>Agents</h2>")[1].split("<h2>Success</h2>")[0]
    table = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    levels = "1.00 2/2 " * 3
    assert f"effort=high {levels}1.00 6/6 0.61 to 1.00 6/6 0.02 900 1.5" in table
    assert table.index("reasoning_effort=high") < table.index("reasoning_effort=low")


def test_of_equal_agents_the_cheaper_is_first_and_one_without_success_is_last():
    scores = [
        scored(True, agent="dear")._replace(metrics={"cost_usd": 2.0}),
        scored(True, agent="unknown"),
        scored(True, agent="cheap")._replace(metrics={"cost_usd": 1.0}),
        scored(False, agent="lost"),
        scored(True, valid=False, agent="invalid"),
    ]
    found = [group.total.agent for group in summarise(scores).headlines]
    assert found == ["cheap", "dear", "unknown", "lost", "invalid"]


def test_every_row_names_its_agent_shortly_and_what_that_stands_for_is_said_once():
    text = printed(of_two_agents())
    assert text.count(f"effort=high stands for {HIGH}") == text.count(HIGH) == 1
    below = text.split("Success by environment")[1]
    assert below.count("reasoning_effort=high") == below.count("reasoning_effort=low") == 8
    assert max(map(len, printed(of_two_agents(), 100).splitlines())) <= 100


def test_the_report_says_names_in_full_as_a_tooltip_and_in_a_legend():
    page = render_report(of_two_agents(), "t")
    full = HIGH.replace("&", "&amp;")
    assert f'<td class="name" title="{full}">openai:m reasoning_effort=high</td>' in page
    assert f'<tr><td>openai:m reasoning_effort=high</td><td class="text">{full}</td></tr>' in page


def test_episodes_of_unknown_cost_are_counted_once_for_each_agent():
    usage = ModelUsage("p", "m", calls=1, input=1)
    scores = [
        scored(True, task)._replace(env_id=env_id, models=[usage])
        for task, env_id in (("t", "e/One-v1"), ("u", "e/Two-v1"))
    ]
    assert printed(summarise(scores)).count("unknown cost") == 1
    assert "a: 2 of unknown cost" in printed(summarise(scores))
    assert "Cost unknown: no price for p/m." in render_report(summarise(scores), "t")
