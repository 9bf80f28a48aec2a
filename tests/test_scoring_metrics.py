"""Metrics and first faults of episodes whose story is known."""

import math
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import calls, gold, letters, make_task

from env_server.env import FaultCode, Final, NoAction, Text, ToolCall
from env_server.episode import Episode, EpisodeSpec
from env_server.registry import Registry
from env_server.scoring import langchain
from env_server.scoring.faults import BY_CODE, Capability, first_fault
from env_server.scoring.metrics import METRICS, measure
from env_server.scoring.replayed import GoldBook, Replayed
from railgym.actions import call

THEIRS = ("langchain_steps:type_letter,type_letter,type_letter",)
DOG = make_task(tags=list(THEIRS))
KEYS = make_task(
    task_id="test/keys",
    env_id="railgym/TypewriterKeys-v1",
    options={"target": "abab", "finish": "final"},
    gold=[{"tool": c} for c in "abab"] + [{"final": ""}],
)
SUM = make_task(
    task_id="test/sum",
    env_id="railgym/MultiverseMath-v1",
    options={},
    expected="multiply(add(1, 2), 7)",
    validators=[{"name": "answer_number"}, {"name": "must_call", "any_of": ["add", "multiply"]}],
    gold=[
        {"tool": "add", "arguments": {"a": 1, "b": 2}},
        {"tool": "multiply", "arguments": {"a": {"$step": 1}, "b": 7}},
        {"final": "$expected"},
    ],
    max_steps=6,
    tags=["langchain_steps:multiply,add", "langchain_order:any"],
)
ZERO = make_task(
    task_id="test/zero",
    env_id="railgym/MultiverseMath-v1",
    options={},
    expected="subtract(3, 0)",
    validators=[{"name": "answer_number"}],
    gold=[{"tool": "subtract", "arguments": {"a": 3, "b": 0}}, {"final": "$expected"}],
)
FORM = make_task(
    **{**SUM.model_dump(), "task_id": "test/form", "required_fields": ["total"]},
)
RAILS = make_task(
    **{
        **SUM.model_dump(),
        "task_id": "test/rails",
        "validators": [*SUM.validators, {"name": "max_calls", "n": 2}],
    },
)
SILENT = make_task(
    **{
        **SUM.model_dump(),
        "task_id": "test/silent",
        "validators": [*SUM.validators, {"name": "must_not_call", "tools": ["pi"]}],
    },
)
REGISTRY = Registry({task.task_id: task for task in (DOG, KEYS, SUM, ZERO, FORM, RAILS, SILENT)})
GOLDS = GoldBook(REGISTRY)
ADD = call("add", a=1, b=2)
MULTIPLY = call("multiply", a=4.2, b=7)
ANSWER = Final("32.34")


def run(task, actions, **spec):
    env = REGISTRY.env(task.env_id).make()
    episode = Episode(EpisodeSpec(task.env_id, task, task.options, **spec), env)
    replies = [episode.step(number, action) for number, action in enumerate(actions, start=1)]
    return Replayed(episode, replies, GOLDS.find(episode))


def sums(*numbers):
    return [call("add", a=1, b=number) for number in numbers]


def theirs(replayed):
    found = measure(replayed)
    names = ("Intermediate steps correctness", "# steps / # expected steps", "Correct Final State")
    return [found.get(f"langchain/{name}") for name in (*names, "correctness")]


@pytest.mark.parametrize("task", [DOG, KEYS, SUM], ids=lambda task: task.task_id)
def test_the_gold_solution_is_the_measure(task):
    found = measure(run(task, gold(task, REGISTRY)))
    for name in ("success", "total_reward", "final_state", "trajectory", "step_ratio"):
        assert found[name] == 1
    assert found["steps"] == found["gold_steps"] == len(task.gold)
    assert (found["faults"], found["repeated_calls"]) == (0, 0)
    assert first_fault(run(task, gold(task, REGISTRY))) is None


def test_extra_reads_cost_steps_and_nothing_else():
    found = measure(run(SUM, [ADD, ToolCall("pi"), MULTIPLY, ANSWER]))
    assert (found["success"], found["final_state"], found["answer"]) == (1, 1, 1)
    assert (found["step_ratio"], found["trajectory"]) == (4 / 3, 0)


def test_any_way_as_short_as_the_gold_solution_is_a_right_trajectory():
    swapped = call("add", a=2, b=1)
    assert measure(run(SUM, [swapped, MULTIPLY, ANSWER]))["trajectory"] == 1


def test_a_mended_mistake_costs_the_trajectory_and_not_the_success():
    wrong = call("type_letter", letter="do")
    found = measure(run(DOG, [wrong, *letters("dog")]))
    assert (found["success"], found["trajectory"], found["step_ratio"]) == (1, 0, 1.25)
    assert (found["faults"], found["faults/tool_error"]) == (1, 1)
    assert theirs(run(DOG, [wrong, *letters("dog")])) == [0, 4 / 3, 1, None]


def test_metrics_that_do_not_apply_are_absent():
    failed = measure(run(DOG, letters("do")))
    assert failed["success"] == 0
    assert not {"step_ratio", "answer", "faults/tool_error"} & set(failed)
    assert measure(run(SUM, [ADD])).get("answer") == 0


@pytest.mark.parametrize("rewards", [(1e308, 1e308), (math.inf, -math.inf), (math.nan, 1)])
def test_rewards_whose_sum_is_not_finite_have_none(rewards):
    replayed = run(DOG, letters("do", None))
    replies = [
        reply._replace(transition=reply.transition._replace(reward=reward))
        for reply, reward in zip(replayed.replies, rewards, strict=True)
    ]
    assert "total_reward" not in measure(Replayed(replayed.episode, replies, None))


def test_an_episode_without_a_task_has_no_success():
    episode = Episode(
        EpisodeSpec("railgym/Typewriter-v1"), REGISTRY.env("railgym/Typewriter-v1").make()
    )
    found = measure(Replayed(episode, [], GOLDS.find(episode)))
    assert found == {
        "total_reward": 0,
        "steps": 0,
        "tool_calls": 0,
        "faults": 0,
        "repeated_calls": 0,
    }


def test_a_gold_solution_that_cannot_be_played_leaves_success():
    lost = make_task(
        task_id="test/lost", gold=[{"tool": "type_letter", "arguments": {"letter": {"$step": 9}}}]
    )
    registry = Registry({lost.task_id: lost})
    episode = Episode(
        EpisodeSpec(lost.env_id, lost, lost.options), registry.env(lost.env_id).make()
    )
    replies = [episode.step(k, action) for k, action in enumerate(letters("dog"), start=1)]
    found = measure(Replayed(episode, replies, GoldBook(registry).find(episode)))
    assert found["success"] == 1
    assert "step_ratio" not in found


@pytest.mark.parametrize(
    "answer", ["", "null", "NaN", "Infinity", "-inf", "undefined", "none", "0 or 1", "o"]
)
def test_what_is_no_number_is_not_zero(answer):
    subtract = call("subtract", a=3, b=0)
    assert measure(run(ZERO, [subtract, Final(answer)]))["success"] == 0
    assert measure(run(ZERO, [subtract, Final("0")]))["success"] == 1


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        (letters("dog"), [1, 1, 1, None]),
        ([Final("dog")], [0, 0, 0, None]),
        (letters("cat"), [1, 1, 0, None]),
        (letters("dogg"), [0, 4 / 3, 0, None]),
        ([ToolCall("type"), *letters("dog")], [0, 4 / 3, 1, None]),
        ([Text("not json"), *letters("dog")], [0, 4 / 3, 1, None]),
        ([NoAction("empty_response"), *letters("dog")], [1, 1, 1, None]),
    ],
)
def test_langchains_metrics_of_a_typewriter(actions, expected):
    assert theirs(run(DOG, actions)) == expected


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ([ADD, MULTIPLY, ANSWER], [1, 1, None, 1]),
        ([MULTIPLY, ADD, ANSWER], [1, 1, None, 1]),
        ([ANSWER], [0, 0, None, 1]),
        ([ADD, MULTIPLY, Final("33")], [1, 1, None, 0]),
        ([ADD, ADD, ANSWER], [0, 1, None, 1]),
        ([ADD, MULTIPLY], [1, 1, None, 0]),
    ],
)
def test_langchains_metrics_where_the_order_does_not_matter(actions, expected):
    assert theirs(run(SUM, actions)) == expected


def test_langchains_parse_error_is_a_step_of_its_own_name():
    replayed = run(DOG, [Text("{"), ToolCall("type_letter", "{"), *letters("d")])
    assert langchain.called(replayed) == ["_Exception", "_Exception", "type_letter"]


def test_only_tasks_of_theirs_have_their_metrics():
    assert theirs(run(ZERO, [Final("0")])) == [None] * 4


UND, SEL, INT, CON = Capability

FIRST_FAULTS = {
    "nothing done": (DOG, [Final("")], SEL),
    "nothing asked, a guess": (SUM, [Final("21")], SEL),
    "the right guess, without evidence": (SUM, [ANSWER], SEL),
    "a wrong letter": (DOG, letters("dig"), UND),
    "two letters at once, mended": (DOG, [call("type_letter", letter="do"), *letters("dog")], UND),
    "broken arguments, mended": (DOG, [ToolCall("type_letter", "{"), *letters("dog")], UND),
    "arguments that the schema refuses": (DOG, [call("type_letter", l=1), Final("")], UND),
    "no such tool": (DOG, [ToolCall("type"), *letters("dog")], SEL),
    "a wrong key": (KEYS, calls("a", "b", "b", "b"), SEL),
    "a key too few": (KEYS, calls("a", "b", "a"), SEL),
    "a letter too many": (DOG, letters("dogg"), CON),
    "stopped too early": (DOG, letters("do"), SEL),
    "no answer at all": (DOG, letters("dog", None), CON),
    "no answer, though all was seen": (SUM, [ADD, MULTIPLY], CON),
    "the first answer at the last step": (SUM, [ADD, *sums(3, 4, 5), MULTIPLY, ANSWER], CON),
    "cut off": (DOG, [NoAction("truncated_output"), *letters("dog")], CON),
    "empty": (DOG, [NoAction("empty_response"), *letters("dog")], CON),
    "refused": (DOG, [NoAction("refusal")], CON),
    "asked twice": (SUM, [ADD, ADD, MULTIPLY, ANSWER], INT),
    "a result ignored": (SUM, [ADD, MULTIPLY, Final("21")], INT),
    "the wrong arguments": (SUM, [*sums(3), call("multiply", a=5.2, b=7), Final("40.04")], UND),
    "another tool than needed": (SUM, [ADD, call("divide", a=4.2, b=7), Final("0.3")], SEL),
    "a tool that the rails forbid": (SILENT, [ADD, MULTIPLY, ToolCall("pi"), ANSWER], SEL),
    "the form of the answer": (FORM, [ADD, MULTIPLY, ANSWER], CON),
    "too many calls": (RAILS, [ADD, MULTIPLY, ToolCall("pi"), ANSWER], CON),
    "the earlier of two": (DOG, [ToolCall("type"), *letters("dig")], SEL),
    "none": (DOG, letters("dog"), None),
}


@pytest.mark.parametrize("story", FIRST_FAULTS)
def test_first_fault(story):
    task, actions, expected = FIRST_FAULTS[story]
    assert first_fault(run(task, actions)) == expected


@pytest.mark.parametrize(
    ("actions", "end", "expected"),
    [
        ([], "time_limit", CON),
        (letters("d", None), "time_limit", CON),
        (letters("x", None), "time_limit", UND),
        (letters("d", None), "client_closed", SEL),
        ([], "client_closed", None),
    ],
)
def test_first_fault_of_what_was_ended_from_outside(actions, end, expected):
    assert first_fault(run(DOG, actions), end) == expected


def test_every_fault_code_has_a_capability_and_a_metric():
    codes = set(typing.get_args(FaultCode))
    assert set(BY_CODE) == codes
    assert {f"faults/{code}" for code in codes} <= set(METRICS)


@given(
    actions=st.lists(
        st.one_of(
            st.sampled_from("dogx").map(lambda c: letters(c, None)[0]),
            st.text(max_size=5).map(Text),
            st.sampled_from(["type_letter", "nope"]).map(ToolCall),
            st.just(Final("")),
        ),
        max_size=8,
    )
)
@settings(deadline=None, max_examples=60)
def test_every_story_can_be_measured(actions):
    ended = next((i for i, a in enumerate(actions) if isinstance(a, Final)), len(actions))
    replayed = run(DOG, actions[: ended + 1])
    found = measure(replayed)
    assert set(found) <= set(METRICS)
    assert found["steps"] == len(replayed.replies)
    assert found["success"] or found.get("step_ratio") is None
    if replayed.episode.end is not None and not found["success"]:
        assert first_fault(replayed) is not None
