"""The JSON protocol: exactly one object, found in whatever a model wrapped around it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_server.env import AgentFault, Final, ToolCall
from env_server.protocol import parse

CALL = '{"thought": "d first", "action": "type_letter", "action_input": {"letter": "d"}}'


def fault_of(text):
    with pytest.raises(AgentFault) as caught:
        parse(text)
    assert len(str(caught.value)) < 400
    return caught.value.code


@pytest.mark.parametrize("text", [CALL, f"\n {CALL}\n", CALL.replace('"thought": "d first", ', "")])
def test_one_object_is_a_call(text):
    assert parse(text) == (ToolCall("type_letter", '{"letter":"d"}'), None)


@pytest.mark.parametrize(
    "text",
    [f"```json\n{CALL}\n```", f"```\n{CALL}```", f"I will type it.\n{CALL}", f"{CALL} There."],
)
def test_an_object_in_a_fence_or_in_prose_is_marked(text):
    assert parse(text) == (ToolCall("type_letter", '{"letter":"d"}'), "unwrapped")


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ('"Paris"', "Paris"),
        ('""', ""),
        ("null", ""),
        ("6.2", "6.2"),
        ("25.0", "25"),
        ("true", "true"),
        ('{"city": "Paris"}', '{"city":"Paris"}'),
        ('["b", "a"]', '["b","a"]'),
        ("9007199254740993", "9007199254740993"),
    ],
)
def test_final_is_the_answer(given, answer):
    assert parse(f'{{"action": "final", "action_input": {given}}}') == (Final(answer), None)


def test_final_without_an_input_is_an_empty_answer():
    assert parse('{"action": "final"}') == (Final(""), None)


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (', "action_input": null', "null"),
        ("", "null"),
        (', "action_input": ""', '""'),
        (', "action_input": [1]', "[1]"),
        (', "action_input": {"b": 2.0, "a": 9007199254740993}', '{"a":9007199254740993,"b":2}'),
    ],
)
def test_what_a_tool_is_given_is_for_the_tool_to_judge(given, arguments):
    assert parse(f'{{"action": "pi"{given}}}') == (ToolCall("pi", arguments), None)


@pytest.mark.parametrize("text", ["", "  \n", "\t"])
def test_nothing_is_an_empty_response(text):
    assert fault_of(text) == "empty_response"


@pytest.mark.parametrize(
    "text",
    [
        "I do not know.",
        CALL[:-1],
        CALL[:30],
        CALL + CALL,
        f"{CALL}\n{{}}",
        f"Use {{letter}}: {CALL}",
        "{}",
        '{"action": null}',
        '{"action": ["final"]}',
        '{"action": "pi", "arguments": {}}',
        '{"tool": "pi"}',
        "[1, 2]",
        '"final"',
        CALL.replace('"', "'"),
    ],
)
def test_none_two_or_a_broken_object_is_a_format_error(text):
    assert fault_of(text) == "format_error"


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "pi", "action": "log"}',
        '{"action": "negate", "action_input": {"a": NaN}}',
        '{"action": "negate", "action_input": {"a": 1e400}}',
        '{"action": "negate", "action_input": {"a": %s}}' % ("9" * 5_000),
        '{"action": "pi", "action_input": %s}' % ("[" * 80 + "]" * 80),
        "{" + " " * 70_000 + "}",
    ],
)
def test_json_that_breaks_the_canonical_rule_is_bad_arguments(text):
    assert fault_of(text) == "bad_arguments"


@given(st.text(st.characters(exclude_categories=()), max_size=80))
@settings(deadline=None, max_examples=60)
def test_any_text_around_one_object_gives_it_or_a_fault(noise):
    for text in (noise + CALL, CALL + noise):
        try:
            found = parse(text)
        except AgentFault:
            continue
        assert found[0] == ToolCall("type_letter", '{"letter":"d"}')


@given(st.text(st.characters(exclude_categories=()), max_size=80))
@settings(deadline=None, max_examples=60)
def test_any_answer_arrives_as_it_is(answer):
    text = json.dumps({"action": "final", "action_input": answer})
    assert parse(text) == (Final(json.loads(json.dumps(answer))), None)
