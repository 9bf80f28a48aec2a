"""What counts as right: each validator on answers that are, and on those that only look so."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_server.validators import VALIDATORS, CallRecord, Ending, judge, parameters, plain

CALLS = [
    CallRecord(1, "find", {"name": "Eve"}, None),
    CallRecord(2, "weather", None, "bad_arguments"),
    CallRecord(3, "city", {"id": 4}, None),
    CallRecord(4, "weather", {"id": 4}, None),
    CallRecord(5, "city", {"id": 5}, "tool_error"),
]


def holds(name, answer=None, expected=None, state=None, calls=CALLS, **given):
    return VALIDATORS[name](Ending(answer, lambda: state, calls, expected), **given)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Paris", "Paris"),
        ("  paris. ", "Paris"),
        ("**New   York**", "new york"),
        ("eve@example.com.", "eve@example.com"),
        ("2023-11-14 10:30", "2023-11-14 10:30"),
        ("\uff30\uff41\uff52\uff49\uff53", "Paris"),
        ("6.2.", 6.2),
        ("TRUE", True),
        ("Straße", "STRASSE"),
    ],
)
def test_answer_equals_looks_past_case_spaces_and_punctuation(answer, expected):
    assert holds("answer_equals", answer, expected)


@pytest.mark.parametrize(
    "answer", [None, "", "none", "None", "null", "undefined", "NaN", "Paris!a"]
)
@pytest.mark.parametrize("expected", ["Paris", 0, None])
def test_answer_equals_does_not_take_nothing_for_something(answer, expected):
    assert not holds("answer_equals", answer, expected)


def test_answer_equals_takes_other_forms():
    assert holds("answer_equals", "NYC", "New York", also=["NYC", "Big Apple"])
    assert holds("answer_equals", "unknown", None, also=["unknown"])
    assert not holds("answer_equals", "NYC or New York", "New York", also=["NYC"])


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("Paris", True),
        ("It is Paris.", True),
        ("It is Paris, I think", False),
        ("Pariss", False),
        ("", False),
        (None, False),
    ],
)
def test_answer_contains_allows_a_few_words_around(answer, result):
    assert holds("answer_contains", answer, "Paris") is result


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("6.2", 6.2),
        ("The answer is 6.2.", 6.2),
        ("6.20000001", 6.2),
        ("131778", 131778),
        ("131,778", 131778),
        ("-131,778.0", -131778),
        ("\u2212131778", -131778),
        ("**5**", 5),
        ("$5", 5),
        ("=5 apples", 5),
        ("0", 0),
        ("-0.0", 0),
        ("0.0000001", 0),
        (".5", 0.5),
        ("5.", 5),
        ("1.31778e5", 131778),
        ("1e-300", 1e-300),
        ("32,944.5", 32944.5),
    ],
)
def test_answer_number_finds_the_number(answer, expected):
    assert holds("answer_number", answer, expected)


@pytest.mark.parametrize("expected", [0, 5, 6.2, -131778])
@pytest.mark.parametrize(
    "answer",
    [
        None,
        "",
        " ",
        "null",
        "None",
        "NaN",
        "nan",
        "Infinity",
        "-inf",
        "undefined",
        "zero",
        "five",
        "1e400",
        "-1e999",
        "0x0",
        "5²",
        "6.2 or 0",
        "5/1",
        "131,778, or 5",
        "1.2.3",
        "0.0.0",
        "6,2,0",
        "0 " * 6_000,
        "[]",
        "[].__class__",
        "0+0",
        "__import__('os')",
    ],
)
def test_answer_number_takes_nothing_else_for_it(answer, expected):
    assert not holds("answer_number", answer, expected)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("131778", -131778),
        ("-6.2", 6.2),
        ("6.3", 6.2),
        ("0.1", 0),
        ("13,1778", 131778),
        ("131 778", 131778),
        ("131.778", 131778),
    ],
)
def test_answer_number_is_exact_about_sign_and_size(answer, expected):
    assert not holds("answer_number", answer, expected)


def test_answer_number_has_a_relative_tolerance():
    assert holds("answer_number", "101", 100, tolerance=0.01)
    assert not holds("answer_number", "102", 100, tolerance=0.01)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**18), 10**18))
@settings(deadline=None, max_examples=100)
def test_answer_number_takes_any_number_as_it_is_written(number):
    for written in (str(number), json.dumps(number), f"It is {number}."):
        assert holds("answer_number", written, number, tolerance=0)
    if isinstance(number, int):
        assert holds("answer_number", f"{number:,}", number, tolerance=0)


@pytest.mark.parametrize("word", ["yes", "no"])
def test_answer_yes_no(word):
    other = {"yes": "no", "no": "yes"}[word]
    for answer in (word, word.upper() + "!", f"**{word}**", f"{word}, because it is so"):
        assert holds("answer_yes_no", answer, word)
        assert not holds("answer_yes_no", answer, other)
    for answer in (
        None,
        "",
        "maybe",
        f"{word} and {other}",
        f"{word}. Or {other}?",
        f"I say {word}",
        f"{word}{word}",
        f"{other}, not {word}",
    ):
        assert not holds("answer_yes_no", answer, word)


@pytest.mark.parametrize(
    "answer",
    [
        "eggs, milk",
        "Milk and eggs",
        "milk\neggs",
        "- eggs\n- milk",
        "MILK AND EGGS.",
        '["milk", "eggs"]',
        "milk; eggs",
        "milk, and eggs",
    ],
)
def test_answer_set_is_in_any_order(answer):
    assert holds("answer_set", answer, ["milk", "eggs"])


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "",
        "milk",
        "milk eggs",
        "milk, eggs, fish",
        "milk, milk",
        "milk, eggs, eggs",
        "none",
        "all",
    ],
)
def test_answer_set_has_all_items_once_and_no_other(answer):
    assert not holds("answer_set", answer, ["milk", "eggs"])


def test_answer_set_of_one_and_of_none():
    assert holds("answer_set", "Milk.", "milk")
    assert holds("answer_set", "Milk.", ["milk"])
    assert holds("answer_set", "7", 7)
    assert holds("answer_set", "none", [])
    assert not holds("answer_set", "", [])
    assert not holds("answer_set", "m, i, l, k", "milk")


def test_state_equals():
    assert holds("state_equals", state={"paper": "dog"}, expected="dog", field="paper")
    assert holds("state_equals", state=["a"], expected=["a"])
    assert not holds("state_equals", state={"paper": "dog "}, expected="dog", field="paper")
    assert not holds("state_equals", state={"paper": None}, expected=0, field="paper")


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({"any_of": ["find"]}, True),
        ({"any_of": ["find", "weather"], "at_least": 2}, True),
        ({"any_of": ["find"], "at_least": 2}, False),
        ({"any_of": ["weather"], "at_least": 2}, False),
        ({"any_of": ["Find"]}, False),
    ],
)
def test_must_call_counts_calls_without_a_fault(given, result):
    assert holds("must_call", **given) is result


def test_must_not_call_counts_calls_with_a_fault_too():
    assert holds("must_not_call", tools=["find_all"])
    assert not holds("must_not_call", tools=["find_all", "find"])
    assert not holds("must_not_call", calls=CALLS[1:2], tools=["weather"])


def test_max_calls_counts_every_call():
    assert holds("max_calls", n=5)
    assert not holds("max_calls", n=4)


def test_calls_in_order_leaves_others_and_faults_aside():
    assert holds("calls_in_order", tools=["find", "weather"])
    assert holds("calls_in_order", tools=[])
    assert not holds("calls_in_order", tools=["weather", "city"])
    assert not holds("calls_in_order", tools=["find", "find"])


@pytest.mark.parametrize("name", VALIDATORS)
def test_every_validator_says_what_it_is_and_what_it_needs(name):
    needed, taken = parameters(name)
    assert needed <= taken
    assert VALIDATORS[name].__name__ == name
    assert VALIDATORS[name].__doc__


def test_judge_wants_all_rules_and_all_fields():
    def verdict(answer, *rules):
        return judge(rules, ["city", "id"], Ending(answer, lambda: "x", CALLS, "x"))

    rule = {"name": "must_call", "any_of": ["find"]}
    twice = ({"name": "max_calls", "n": 2}, {"name": "max_calls", "n": 9})
    assert verdict('{"id": 4, "city": "Paris", "more": 1}', rule) == {
        "required_fields": True,
        "must_call": True,
    }
    for answer in (None, "", "Paris", '{"id": 4}', '{"id": 4, "city": "Paris"', '["id", "city"]'):
        assert verdict(answer, rule) == {"required_fields": False, "must_call": True}
    assert verdict("{}", *twice)["max_calls"] is False
    assert verdict("{}", *reversed(twice))["max_calls"] is False


def test_an_answer_is_data():
    for answer in ("[].__class__", "${HOME}", "'; DROP TABLE users; --", "{0.__class__}", "%s"):
        assert not holds("answer_equals", answer, "Paris")
        assert not holds("answer_set", answer, ["Paris"])
    assert plain("{0.__class__}") == "0.__class__"
