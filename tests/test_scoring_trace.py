"""What happened in an episode: turns, claims, state changes, and what cannot be shown."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import Play, letters, make_task, write_log

from env_server.registry import Registry
from env_server.scoring.changes import LONGEST, MOST, Change, changes
from env_server.scoring.trace import traces
from railgym import ToolCall

DOG = make_task()
REGISTRY = Registry({DOG.task_id: DOG})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": 1}, {"a": 2}, [("a", "1", "2")]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, [("a.b.1", "2", "3")]),
        ({"a": 1}, {"b": None}, [("a", "1", None), ("b", None, "null")]),
        ([{"id": 1}, {"id": 2}], [{"id": 2}], [("", '{"id":1}', None)]),
        ({"rows": []}, {"rows": [7, 7]}, [("rows", None, "7"), ("rows", None, "7")]),
        ("do", "dog", [("", '"do"', '"dog"')]),
        ({"a": True}, {"a": 1}, [("a", "true", "1")]),
        ({"a": [1]}, {"a": [1]}, []),
    ],
)
def test_changes_name_the_place_and_both_values(before, after, found):
    assert changes(before, after) == [Change(*change) for change in found]


def test_many_and_long_changes_are_cut_and_say_so():
    many = changes({}, {f"{i:03}": i for i in range(MOST + 7)})
    assert len(many) == MOST + 1
    assert many[-1] == Change("", None, "7 more changes")
    (long,) = changes("", "x" * 1000)
    assert long.after.startswith('"x')
    assert long.after.endswith("(1002 characters)")
    assert len(long.after) < LONGEST + 30


@given(VALUES, VALUES)
@settings(deadline=None, max_examples=60)
def test_there_are_changes_where_states_differ_and_only_there(before, after):
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert changes(before, before) == []
    if isinstance(before, list) and isinstance(after, list) and len(before) != len(after):
        return  # compared as collections
    assert (changes(before, after) == []) == same


def traced(path, *plays, registry=REGISTRY, known=REGISTRY):
    write_log(path, plays, registry)
    return list(traces(path, known))


def test_a_trace_holds_steps_by_turns_with_what_each_changed(tmp_path):
    actions = [*letters("do", None), ToolCall("nope", "{"), *letters("g")]
    claims = [{"turn": 1, "n": 9007199254740993}, {"turn": 2}]
    play = Play(DOG, actions, {"agent": "a"}, turns=[1, 1, 2, 0, 0], claims=claims)
    (trace,) = traced(tmp_path, play)
    assert [[step.number for step in turn] for turn in trace.turns] == [[1, 2], [3], [4], [5]]
    assert [step.fault for step in trace.steps] == ["", "", "unknown_tool", "", ""]
    typed = [step.changes[0].after for step in trace.steps if step.changes]
    assert typed == ['"d"', '"do"', '"dog"']
    assert trace.claims == claims
    assert trace.instruction == DOG.instruction
    assert trace.reference == "dog"
    assert [tool.name for tool in trace.tools] == ["type_letter"]
    assert (trace.end_reason, trace.unseen) == ("final", "")


def test_an_episode_that_cannot_be_run_here_is_shown_as_it_stands(tmp_path):
    other = make_task(instruction="Another one.")
    (trace,) = traced(
        tmp_path,
        Play(DOG, letters("dog"), {"agent": "a"}),
        known=Registry({other.task_id: other}),
    )
    assert "has changed" in trace.unseen
    assert [step.tool for step in trace.steps] == ["type_letter"] * 3 + [""]
    assert (trace.instruction, trace.tools, trace.reference) == ("", [], None)
    assert not any(step.changes for step in trace.steps)


def test_an_environment_that_raises_leaves_a_trace(tmp_path, registry, monkeypatch):
    options = {"target": "dog", "finish": "final"}
    play = Play(None, letters("dog"), {}, env_id="railgym/Typewriter-v1", options=options)
    (trace,) = traced(tmp_path, play, known=registry)
    assert trace.unseen == ""
    entry = registry.env("railgym/Typewriter-v1")
    monkeypatch.setattr(entry.env_class, "state", lambda env: 1 / 0)
    (trace,) = list(traces(tmp_path, registry))
    assert trace.unseen == "the environment raised ZeroDivisionError"
    assert len(trace.steps) == 4
