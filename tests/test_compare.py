"""Two agents on the same tasks: paired, tested exactly, and only where they can be compared."""

import io
import json
import re
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from env_server.cli.app import app
from env_server.cli.exits import Exit
from env_server.scoring.compare import Beside, DifferentTasks, NothingInCommon, compare
from env_server.scoring.replay import Outcome
from env_server.scoring.score import EpisodeScore
from env_server.scoring.statistics import mcnemar, mean_interval, smallest_difference
from env_server.scoring.summary import summarise, write_scores
from env_server.scoring.table import beside_table, comparison_table, differences

BOTH, NONE, ONLY_A, ONLY_B = (True, True), (False, False), (True, False), (False, True)
TWENTY = [*[ONLY_B] * 7, ONLY_A, *[BOTH] * 8, *[NONE] * 4]
"""Eight tasks differ, 7:1."""


def scored(task, success, agent="a", level="L1", trial="1", digest=None, **more):
    return EpisodeScore(
        episode_id=f"{agent}-{task}-{trial}.1",
        env_id="railgym/Typewriter-v1",
        task_id=task,
        level=level,
        labels={"agent": agent, "run": "r", "trial": trial},
        outcome=Outcome.VERIFIED,
        end_reason="final",
        valid=success is not None,
        invalid_reason="api_error" if success is None else None,
        success=success,
        task_sha256=f"sha of {task}" if digest is None else digest,
        **more,
    )


def sides(pairs, level="L1"):
    names = [f"task-{i:02}" for i in range(len(pairs))]
    a = [scored(n, pair[0], "a", level) for n, pair in zip(names, pairs, strict=True)]
    b = [scored(n, pair[1], "b", level) for n, pair in zip(names, pairs, strict=True)]
    return a, b


def write(path, *scores):
    path.mkdir(parents=True, exist_ok=True)
    write_scores(summarise(scores), path / "scores.json")
    return path


def run(*args, code=Exit.OK):
    result = CliRunner().invoke(app, ["compare", *map(str, args)])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_twenty_tasks_of_which_eight_differ_seven_to_one(tmp_path):
    a, b = sides(TWENTY)
    one, other = write(tmp_path / "one", *a), write(tmp_path / "other", *b)
    shown = run(one, other)
    assert re.search(r"all all 20 0\.45 0\.75 \+0\.30 \+0\.05 to \+0\.55 7 1 0\.070 0\.38", shown)
    assert shown.count("better: task-") == 7
    assert "worse: task-07 (L1): 1.00 to 0.00" in shown
    found = json.loads(run(one, other, "--json"))
    pooled = found["pooled"]
    assert pooled["p_value"] == pytest.approx(0.0703125)
    assert (pooled["low"], pooled["high"]) == pytest.approx((0.05, 0.55))
    assert (pooled["tasks"], pooled["better"], pooled["worse"]) == (20, 7, 1)
    assert [flip["task_id"] for flip in found["worse"]] == ["task-07"]
    assert found["a"] == {"path": str(one), "agent": "a"}


def test_the_other_way_round_everything_is_turned():
    a, b = sides(TWENTY)
    there, back = compare(a, b), compare(b, a)
    assert back.pooled.difference == -there.pooled.difference
    assert (back.pooled.low, back.pooled.high) == pytest.approx((-0.55, -0.05))
    assert back.pooled.p_value == there.pooled.p_value
    assert (back.better, back.worse) == (
        [flip._replace(a=flip.b, b=flip.a) for flip in there.worse],
        [flip._replace(a=flip.b, b=flip.a) for flip in there.better],
    )


def test_pairs_are_by_task_and_not_by_order_or_by_rate():
    a, b = sides(TWENTY)
    assert compare(a[::-1], b) == compare(a, b)
    same_rates = sides([*[ONLY_B] * 6, *[BOTH] * 9, *[NONE] * 5])
    crossed = sides([*[ONLY_B] * 10, *[ONLY_A] * 4, *[BOTH] * 5, NONE])
    sure, unsure = compare(*same_rates).pooled, compare(*crossed).pooled
    assert (sure.a, sure.b) == (unsure.a, unsure.b) == (0.45, 0.75)
    assert (sure.p_value, unsure.p_value) == pytest.approx((0.03125, 0.179565), abs=1e-6)


def test_every_task_counts_once_however_often_it_was_tried():
    a = [scored("t", s, trial=str(i)) for i, s in enumerate((True, False, False, None))]
    a += [scored("u", True)]
    b = [scored("t", True, "b"), scored("u", True, "b")]
    found = compare(a, b)
    assert (found.pooled.a, found.pooled.b) == (pytest.approx(2 / 3), 1)
    assert [(flip.a, flip.b) for flip in found.better] == [(pytest.approx(1 / 3), 1)]
    assert (found.pooled.better, found.pooled.worse, found.pooled.p_value) == (1, 0, 1)


def test_levels_stand_beside_their_sum():
    easy, hard = sides([BOTH] * 3), sides([ONLY_B] * 3, "L3")
    hard = [[s._replace(task_id=f"hard-{s.task_id}") for s in side] for side in hard]
    hard = [[s._replace(task_sha256=s.task_id) for s in side] for side in hard]
    found = compare(easy[0] + hard[0], easy[1] + hard[1])
    assert [(p.level, p.tasks, p.difference) for p in found.levels] == [("L1", 3, 0), ("L3", 3, 1)]
    assert (found.pooled.level, found.pooled.tasks, found.pooled.difference) == ("", 6, 0.5)


def test_what_was_used_is_told_by_level_too():
    metrics = {"L1": {"steps": 3.0}, "L3": {"steps": 12.0}}
    a, b = (
        [scored(level, True, agent, level, metrics=metrics[level]) for level in metrics]
        for agent in "ab"
    )
    out = io.StringIO()
    Console(file=out, width=100).print(beside_table(compare(a, b)))
    found = re.findall(r"(L\d|all) +steps +(\d) +([\d.]+)", out.getvalue())
    assert found == [("L1", "1", "3"), ("L3", "1", "12"), ("all", "2", "7.5")]


def test_other_tasks_of_the_same_name_are_refused_by_name(tmp_path):
    a, b = sides([BOTH] * 3)
    b[1] = b[1]._replace(task_sha256="another")
    with pytest.raises(DifferentTasks, match=r"got others: task-01$") as caught:
        compare(a, b)
    assert caught.value.task_ids == ["task-01"]
    one, other = write(tmp_path / "one", *a), write(tmp_path / "other", *b)
    assert "task-01" in run(one, other, code=Exit.WRONG_INPUT)
    with pytest.raises(DifferentTasks, match="task-00, task-01, task-02"):
        compare(*([s._replace(task_sha256="") for s in side] for side in (a, b)))
    with pytest.raises(DifferentTasks, match="task-09 and 2 more"):
        compare(sides([BOTH] * 12)[0], [s._replace(task_sha256="?") for s in sides([BOTH] * 12)[1]])


def test_other_tasks_that_only_one_side_has_do_no_harm_and_are_named(tmp_path):
    a, b = sides([BOTH] * 6)
    b[5] = b[5]._replace(success=None, valid=False, invalid_reason="api_error")
    found = compare(a[1:], b[:4] + b[5:])
    assert (found.only_a, found.only_b, found.unjudged) == (["task-04"], ["task-00"], ["task-05"])
    assert found.pooled.tasks == 3
    shown = run(write(tmp_path / "a", *a[1:]), write(tmp_path / "b", *b[:4], *b[5:]))
    assert "not compared, only in A: task-04" in shown
    assert "not compared, only in B: task-00" in shown
    assert "not compared, without a valid try on one side: task-05" in shown


def test_nothing_in_common_is_refused(tmp_path):
    a, b = sides([BOTH])
    for theirs in ([], [b[0]._replace(success=None, valid=False)], [b[0]._replace(task_id="x")]):
        with pytest.raises(NothingInCommon):
            compare(a, theirs)
    run(write(tmp_path / "a", *a), write(tmp_path / "b", scored("x", True)), code=Exit.WRONG_INPUT)


def test_costs_stand_beside_success_over_the_tasks_that_have_them_on_both_sides():
    a, b = sides([BOTH] * 4)
    a = [s._replace(metrics={"cost_usd": 0.1 * i, "steps": 4}) for i, s in enumerate(a)]
    b = [s._replace(metrics={"cost_usd": 1.0, "steps": 3}) for s in b[:3]] + [b[3]]
    found = compare(a, b).pooled.metrics
    assert found == {"steps": Beside(3, 4, 3), "cost_usd": Beside(3, 0.1, 1)}


def test_two_agents_of_one_run(tmp_path):
    a, b = sides(TWENTY)
    folder = write(tmp_path / "run", *a, *b)
    assert "0.070" in run(folder)
    assert run(folder) == run(folder, folder, "--agent-a", "a", "--agent-b", "b")
    assert "-0.30" in run(folder / "scores.json", "--agent-a", "b", "--agent-b", "a")
    linked = tmp_path / "linked"
    linked.symlink_to(folder)
    for other in (folder, folder / "scores.json", linked):
        assert "expected two runs or two agents" in run(
            folder, other, "--agent-a", "a", "--agent-b", "a", code=Exit.WRONG_INPUT
        )
        assert "0.070" in run(folder, other)


def test_where_interval_and_test_disagree_a_line_says_which_decides(tmp_path):
    assert compare(*sides([*[ONLY_B] * 6, *[BOTH] * 9, *[NONE] * 5])).notes == []
    assert compare(*sides([BOTH] * 6)).notes == []
    a, b = sides([*[ONLY_A] * 5, BOTH])
    found = compare(a, b)
    assert (found.pooled.high < 0, found.pooled.p_value) == (True, 0.0625)
    [note] = found.notes
    assert note.startswith("interval and p disagree on railgym/Typewriter-v1 L1, all: p decides")
    one, other = write(tmp_path / "one", *a), write(tmp_path / "other", *b)
    assert note in run(one, other)
    assert json.loads(run(one, other, "--json"))["notes"] == [note]


def test_the_reverse_is_told_too():
    often = [scored(f"t{i}", i != 0, "a", trial=str(k)) for i in range(9) for k in range(9)]
    less = [
        scored(f"t{i}", k > 0 if i else True, "b", trial=str(k)) for i in range(9) for k in range(9)
    ]
    found = compare(often, less)
    assert (found.pooled.low < 0 < found.pooled.high, found.pooled.p_value) == (True, 0.0390625)
    assert len(found.notes) == 1


def test_an_agent_that_is_not_told_or_not_there_is_refused_with_the_names(tmp_path):
    a, b = sides([BOTH])
    several = write(tmp_path / "run", *a, *b, scored("task-00", True, "c"))
    single = write(tmp_path / "single", *a)
    for args in ([several], [single, several], [single, several, "--agent-b", "d"]):
        assert "'a', 'b', 'c'" in run(*args, code=Exit.WRONG_INPUT)
    assert "twice a in" in run(single, code=Exit.WRONG_INPUT)
    assert "expected a scores.json" in run(tmp_path / "none", single, code=Exit.WRONG_INPUT)


@given(better=st.integers(0, 12), worse=st.integers(0, 12))
@settings(deadline=None, max_examples=60)
def test_the_exact_test_counts_the_splits_that_are_as_uneven(better, worse):
    n = better + worse
    uneven = abs(better - worse)
    ways = [abs(2 * sum(way) - n) >= uneven for way in product((0, 1), repeat=min(n, 12))]
    if n <= 12:
        assert mcnemar(better, worse) == pytest.approx(sum(ways) / len(ways))
    assert mcnemar(better, worse) == mcnemar(worse, better) <= 1


def test_an_interval_is_the_same_each_time_and_absent_where_resampling_shows_nothing():
    values = [1.0] * 7 + [-1.0] + [0.0] * 12
    assert mean_interval(values) == mean_interval(values)
    assert mean_interval([0.5]) is mean_interval([0.0] * 20) is mean_interval([]) is None
    low, high = mean_interval([0.0] * 50 + [1.0] * 50)
    assert (low, high) == pytest.approx((0.40, 0.60), abs=0.02)


@pytest.mark.parametrize(
    ("n", "differing", "smallest"), [(20, 8, 0.383), (20, 0, 0.366), (100, 20, 0.128)]
)
def test_the_smallest_difference_is_found_in_four_of_five_runs(n, differing, smallest):
    found = smallest_difference(n, differing)
    assert found == pytest.approx(smallest, abs=1e-3)
    random = Random(1)
    share = max(found, differing / n)
    hits = 0
    for _ in range(2000):
        draws = [random.random() for _ in range(n)]
        better = sum(draw < (share + found) / 2 for draw in draws)
        differ = sum(draw < share for draw in draws)
        hits += mcnemar(better, differ - better) <= 0.05
    assert hits / 2000 == pytest.approx(0.8, abs=0.03)


def test_five_tasks_can_show_nothing():
    assert smallest_difference(5, 5) is None
    assert smallest_difference(6, 0) > 0.9


def test_the_tables_fit_a_hundred_columns_and_take_text_as_text():
    evil = "[red]\x1b[31m" + "x" * 200
    a, b = sides(TWENTY)
    a, b = ([s._replace(env_id=evil, metrics={"cost_usd": 1e-5}) for s in side] for side in (a, b))
    found = compare([*a, scored(evil, True)], b)
    out = io.StringIO()
    console = Console(file=out, width=100, color_system="truecolor", force_terminal=True)
    console.print(comparison_table(found, evil, "b"), beside_table(found))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert max(map(len, plain.splitlines())) <= 100
    assert "\x1b[31m" not in out.getvalue()
    assert "[red]" in plain.replace("\n", "")
    assert "1e-05" in plain
    assert not any("\x1b" in line for line in differences(found))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("metrics", {"steps": "four"}, "metrics.steps = 'four': input should be a valid number"),
        ("success", 1, "success = 1: input should be a valid boolean"),
        ("labels", ["a"], "labels = ['a']: input should be a valid dictionary"),
        ("reward", float("inf"), "reward = inf: input should be a finite number"),
    ],
)
def test_scores_that_were_edited_into_other_types_are_refused_by_their_field(
    tmp_path, field, value, says
):
    a, b = sides([BOTH])
    one, other = write(tmp_path / "one", *a), write(tmp_path / "other", *b)
    content = json.loads((other / "scores.json").read_text())
    content["episodes"][0][field] = value
    (other / "scores.json").write_text(json.dumps(content))
    assert says in run(one, other, code=Exit.WRONG_INPUT)


def test_where_there_are_no_scores_it_is_said_what_makes_them(tmp_path):
    said = run(tmp_path, tmp_path / "other.json", code=Exit.WRONG_INPUT)
    assert "No such file" in said
    assert f"`railgym score {tmp_path} -o {tmp_path}/scores.json` makes one" in said
