"""The canonical rule, clause by clause: how argument text is read, and how a value is written."""

import json
import math
import string
import sys
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from env_server.arguments import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_DIGITS,
    BadJson,
    BrokenJson,
    canonical_json,
    is_blank,
    parse_object,
    scan_value,
)

TEXTS = st.text(st.characters(exclude_categories=()))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXTS, parts, max_size=4),
    max_leaves=12,
)


def read(value_text):
    return parse_object(f'{{"a":{value_text}}}')["a"]


def same(one, other):
    """Equal, and of one type all the way down."""
    return repr(one) == repr(other)


def as_doubles(text):
    """The value as other readers of JSON have it, to whom every number is a double."""
    return json.loads(text, parse_int=float)


@pytest.mark.parametrize("text", ["25", "25.0", "25.00", "2.5e1", "2.5E+1", "250e-1", "25e0"])
def test_one_number_has_one_form(text):
    assert same(read(text), 25)


@pytest.mark.parametrize(
    "text", ["0", "-0", "0.0", "-0.0", "0e5", "0e99999999999999999999", "0E-9"]
)
def test_zero_has_one_form(text):
    assert same(read(text), 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993", 9007199254740993),
        ("-9007199254740993", -9007199254740993),
        ("1e22", 10**22),
        ("1e308", 10**308),
        ("0.1", 0.1),
        ("1e-300", 1e-300),
        ("5e-324", 5e-324),
        ("1.0000000000000000000000001", 1),
        ("123456789012345678901234567890.5", int(1.2345678901234568e29)),
        ("1e-99999999999999999999999", 0),
        ("-1e-400", 0),
    ],
)
def test_integers_are_exact_and_other_numbers_are_doubles(text, value):
    assert same(read(text), value)
    assert same(read(canonical_json(read(text))), value)


@pytest.mark.parametrize("form", ["{}", "-{}", ".0{}", "-.0{}"])
@pytest.mark.parametrize("digits", [MAX_DIGITS + 1, 5_000])
def test_numbers_have_at_most_1000_digits(form, digits):
    def number(count):
        return form.replace(".", "0.").format("7" * (count - form.count(".0") * 2))

    assert parse_object(f'{{"a":{number(MAX_DIGITS)}}}')
    with pytest.raises(BadJson, match=f"at most 1,000 digits, got {digits:,}"):
        read(number(digits))


def test_an_integer_of_1000_digits_is_exact():
    assert read("9" * MAX_DIGITS) == 10**MAX_DIGITS - 1
    assert read("-" + "9" * MAX_DIGITS) == 1 - 10**MAX_DIGITS


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e99999999"])
def test_only_finite_numbers(text):
    with pytest.raises(BadJson, match="finite number"):
        read(text)


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":1}', '{"b":{"a":1,"\\u0061":2}}', '{"a":1,"b":2,"a":3}']
)
def test_a_key_stands_once(text):
    with pytest.raises(BadJson, match="got 'a' twice"):
        parse_object(text)


@pytest.mark.parametrize("character", ["\x00", "\x7f", "é", "😀", "\ud800", "\u2028", '"'])
def test_strings_keep_every_code_point(character):
    escaped = "".join(f"\\u{ord(c):04x}" for c in _utf16(character))
    for text in (json.dumps(character), f'"{escaped}"'):
        assert read(text) == character
    written = canonical_json(character)
    assert written.isascii()
    assert json.loads(written) == character


def _utf16(character):
    data = character.encode("utf-16-be", "surrogatepass")
    return [chr(int.from_bytes(data[i : i + 2])) for i in range(0, len(data), 2)]


@pytest.mark.parametrize("text", ["[]", '"{}"', "25", "null", "true", "2.5"])
def test_arguments_are_an_object(text):
    with pytest.raises(BadJson, match="expected a JSON object, got"):
        parse_object(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1',
        '{"a":1}}',
        "{'a':1}",
        '{"a":1,}',
        '{"a"}',
        "{} {}",
        "call f(1)",
        '{"a":01}',
        "",
        '{"a":"\n"}',
        '{"a":+1}',
        '{"a":.5}',
        "\ufeff{}",
        "}{",
    ],
)
def test_broken_text_is_no_json(text):
    with pytest.raises(BrokenJson, match="expected"):
        parse_object(text)


def test_the_error_shows_what_came_and_is_short():
    with pytest.raises(BrokenJson, match=r"got text that is not JSON: '{xxx.*60,001 characters"):
        parse_object("{" + "x" * 60_000)


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_nesting_has_a_limit(brackets):
    def nested(depth):
        opened, closed = ("[", "]") if brackets == "[]" else ('{"a":', "}")
        return '{"a":' + opened * (depth - 1) + "1" + closed * (depth - 1) + "}"

    parse_object(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 500, 10_000):
        with pytest.raises(BadJson, match="at most 64 levels"):
            parse_object(nested(depth))


def test_brackets_in_strings_and_side_by_side_are_not_nesting():
    value = {"a": "[{" * 500 + '"', "b": [[]] * 500, "c\\": '\\"[' * 100}
    assert parse_object(canonical_json(value)) == value


@pytest.mark.parametrize("depth", [60, 65, 300, 900, 990, 1_100, 30_000])
def test_the_verdict_on_broken_nesting_does_not_depend_on_the_callers_depth(depth):
    def fate(frames):
        if frames:
            return fate(frames - 1)
        try:
            return parse_object("[" * depth)
        except (BadJson, BrokenJson) as e:
            return type(e)

    room = sys.getrecursionlimit() - 250
    assert fate(0) is fate(room) is (BadJson if depth > MAX_DEPTH else BrokenJson)


def test_text_has_at_most_64_ki_characters():
    room = MAX_CHARACTERS - len('{"a":""}')
    assert len(read(f'"{"é" * room}"')) == room
    with pytest.raises(BadJson, match="at most 65,536 characters of JSON, got 65,537"):
        read(f'"{"x" * (room + 1)}"')


def test_hostile_text_is_read_in_no_time():
    keys = ",".join(f'"{i:x}":0' for i in range(7_000))
    hostile = [
        f'{{{keys},"1b57":0}}',
        "[" * 65_000,
        "[]," * 20_000,
        '{"a":"' + "\\" * 60_000,
        '"' * 65_000,
        " " * 10**6 + "x",
        f'{{"a":{"9" * 60_000}}}',
        '{"a":1e' + "9" * 60_000,
    ]
    began = time.process_time()
    for text in hostile:
        with pytest.raises((BadJson, BrokenJson)):
            parse_object(text)
        assert not is_blank(text)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "text", ["", " ", "\n\t", " " * 500, '""', "null", '{}""', ' {} "" ', "\nnull\n", '{ }""']
)
def test_blank_text(text):
    assert is_blank(text)


@pytest.mark.parametrize(
    "text", ["{}", "0", "{}{}", '"null"', "nul", "None", '" "', '{"":""}', "[]"]
)
def test_text_that_is_not_blank(text):
    assert not is_blank(text)


def test_canonical_text_is_sorted_ascii_without_spaces():
    text = canonical_json({"b": [1, 2.5, None, True], "a": {"é": "\n", "Z": ""}})
    assert text == '{"a":{"Z":"","\\u00e9":"\\n"},"b":[1,2.5,null,true]}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_json_is_not_written(value):
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json({"a": [value]})
    with pytest.raises(TypeError):
        canonical_json({"a": {1, 2}})


@given(st.dictionaries(TEXTS, VALUES))
@settings(deadline=None, max_examples=100)
def test_reading_and_writing_again_is_stable(value):
    text = canonical_json(value)
    assert set(text) <= set(string.printable) - set("\n\t\r\v\f")
    once = parse_object(text)
    assert as_doubles(canonical_json(once)) == as_doubles(text)
    assert same(parse_object(canonical_json(once)), once)


@given(st.text('{}[]",:\\0123456789.eE+-ntu \n', max_size=40) | TEXTS)
@example('{"a":1e5e}')
@settings(deadline=None, max_examples=300)
def test_any_text_gives_an_object_or_one_of_two_errors(text):
    try:
        value = parse_object(text)
    except (BadJson, BrokenJson) as e:
        value = e
    if isinstance(value, ValueError):
        assert len(str(value)) < 400
    else:
        assert as_doubles(canonical_json(value)) == as_doubles(text)


def test_a_value_ends_where_it_ends():
    assert scan_value('so: {"a":1} and', 4) == ({"a": 1}, 11)
