"""The contract for authors: a typed method with a docstring is a tool, and mistakes show early."""

import json
from typing import Annotated, Literal

import pytest
from pydantic import Field

from env_server.env import (
    Final,
    NoAction,
    Options,
    Text,
    Tool,
    ToolCall,
    ToolEnv,
    ToolError,
    observation_text,
    tool,
)
from env_server.errors import BadOptions
from env_server.tools import RESERVED
from railgym.spaces import MAX_OBSERVATION, ToolSpace, ToolSpec


class DeskOptions(Options):
    pages: int = Field(default=3, ge=1)


class Desk(ToolEnv):
    """A desk with a notebook."""

    OPTIONS = DeskOptions

    def _begin(self):
        self.notes = []
        self.luck = int(self.np_random.integers(10**9))

    def state(self):
        return {"notes": self.notes, "luck": self.luck}

    @tool
    def write(
        self,
        line: str,
        page: Annotated[int, Field(ge=1, le=9)] = 1,
        ink: Literal["Blue", "Red"] = "Blue",
        to: str | None = None,
        tags: list[str] | None = None,
        marks: dict[str, bool] | None = None,
    ) -> int:
        """Writes a line.

        It cannot be taken back.

        Args:
            line: The line.
            page: Where.
        """
        if page > self.options.pages:
            raise ToolError(f"there are {self.options.pages} pages, not {page}")
        self.notes.append([line, page, ink, to, tags, marks])
        return len(self.notes)

    @tool
    def draw(self) -> int:
        """Draws a number."""
        self.luck = int(self.np_random.integers(10**9))
        return self.luck

    @tool
    def unroll(self) -> str:
        """Shows more than anybody can read."""
        return "x" * MAX_OBSERVATION


def desk(**options):
    env = Desk()
    env.reset(seed=5, options=options)
    return env


def method(name, doc="Does it."):
    def run(self):
        return None

    run.__name__, run.__doc__ = name, doc
    return run


@pytest.mark.parametrize("name", [*sorted(RESERVED), "", "a b", "a.b", "x" * 65, "größe", "a\n"])
def test_names_that_no_tool_may_have(name):
    with pytest.raises(TypeError, match="cannot be named"):
        tool(method(name))
    with pytest.raises(TypeError, match="cannot be named"):
        Tool(method("fine"), name=name or " ")


def test_the_protocols_own_words_are_reserved():
    assert {"reset", "step", "state", "fork", "render", "close", "score", "final"} <= RESERVED


@pytest.mark.parametrize("doc", [None, "", "  \n"])
def test_a_tool_needs_a_docstring(doc):
    with pytest.raises(TypeError, match="needs a docstring"):
        tool(method("look", doc))


def test_a_parameter_needs_a_type():
    with pytest.raises(TypeError, match="parameter name of tool find needs a type"):

        @tool
        def find(self, name):
            """Finds."""


def test_the_signature_is_the_schema():
    spec = Desk.TOOLS["write"].spec
    assert spec.name == "write"
    assert spec.description == "Writes a line.\n\nIt cannot be taken back."
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "line": {"type": "string", "description": "The line."},
            "page": {"type": "integer", "minimum": 1, "maximum": 9, "description": "Where."},
            "ink": {"type": "string", "enum": ["Blue", "Red"]},
            "to": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "marks": {
                "anyOf": [
                    {"type": "object", "additionalProperties": {"type": "boolean"}},
                    {"type": "null"},
                ]
            },
        },
        "required": ["line"],
        "additionalProperties": False,
    }
    assert Desk.TOOLS["draw"].spec.parameters == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ({"line": "\ud800"}, ["\ud800", 1, "Blue", None, None, None]),
        ({"line": "", "to": "\udfff", "ink": "Red"}, ["", 1, "Red", "\udfff", None, None]),
        ({"line": "x", "tags": ["\ud83d"], "page": 2}, ["x", 2, "Blue", None, ["\ud83d"], None]),
        ({"line": "x", "marks": {"\ud800": True}}, ["x", 1, "Blue", None, None, {"\ud800": True}]),
        ({"line": "x", "to": None, "tags": None}, ["x", 1, "Blue", None, None, None]),
    ],
)
def test_arguments_come_as_they_are_typed(arguments, note):
    env = desk()
    seen = env.step(ToolCall("write", json.dumps(arguments)))
    assert seen.observation == '{"result":1}'
    assert env.notes == [note]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"line": "x", "page": 0}, "argument 'page' of write: expected {\"maximum\":9"),
        ({"line": "x", "ink": "blue"}, '["Blue","Red"]'),
        ({"line": "x", "tags": ["a", 7]}, "argument 'tags.1' of write"),
        ({"line": "x", "tags": "a"}, 'got "a"'),
        ({"line": "x", "marks": {"a": "yes"}}, 'got "yes"'),
        ({"line": "x" * 9000, "page": "x" * 9000}, "(9,002 characters)"),
        ({"x" * 9000: 1, "line": ""}, "(9,000 characters); it takes line, page"),
    ],
)
def test_what_does_not_fit_is_named(arguments, message):
    env = desk()
    before = env.state_hash()
    seen = env.step(ToolCall("write", json.dumps(arguments)))
    error = json.loads(seen.observation)["error"]
    assert seen.info == {"fault": "bad_arguments"}
    assert message in error["message"]
    assert len(error["message"]) < 400
    assert env.state_hash() == before


def test_a_tool_that_cannot_says_why():
    env = desk(pages=2)
    seen = env.step(ToolCall("write", '{"line": "x", "page": 3}'))
    assert seen.info == {"fault": "tool_error"}
    assert seen.observation == (
        '{"error":{"code":"tool_error","message":"there are 2 pages, not 3"}}'
    )


@pytest.mark.parametrize("action", [Text("{}"), NoAction("refusal"), Text('{"action": "draw"}')])
def test_only_an_episode_reads_texts_and_turns_without_action(action):
    env = desk()
    before = env.state_hash()
    seen = env.step(action)
    assert seen.info == {"fault": "format_error"}
    assert env.state_hash() == before


def test_an_answer_ends():
    assert desk().step(Final("x")) == ('{"result":null}', 0.0, True, False, {})


def test_an_observation_has_a_limit():
    assert len(observation_text("x" * (MAX_OBSERVATION - 2))) == MAX_OBSERVATION
    with pytest.raises(ValueError, match="65,536"):
        desk().step(ToolCall("unroll"))


@pytest.mark.parametrize("options", [{"page": 1}, {"pages": "3"}, {"pages": 0}, {"pages": True}])
def test_options_are_strict(options):
    with pytest.raises(BadOptions, match=f"option '{next(iter(options))}': expected"):
        desk(**options)


def test_wrong_options_leave_environment_and_generator_alone():
    env, other = desk(), desk()
    with pytest.raises(BadOptions):
        env.reset(seed=9, options={"page": 1})
    assert env.step(ToolCall("draw")) == other.step(ToolCall("draw"))


def test_a_subclass_has_the_tools_of_its_bases_and_its_own():
    class Bureau(Desk):
        """With a drawer."""

        @tool
        def open_drawer(self) -> str:
            """Opens it."""
            return "empty"

    assert [*Bureau.TOOLS] == ["write", "draw", "unroll", "open_drawer"]
    assert [*Desk.TOOLS] == ["write", "draw", "unroll"]
    assert [spec.name for spec in Bureau().action_space.tools] == [*Bureau.TOOLS]


def test_a_fork_shares_nothing_that_can_change():
    env = desk()
    env.step(ToolCall("write", '{"line": "x", "tags": ["a"]}'))
    fork = env.fork()
    assert fork.state() == env.state()
    env.notes[0][4].append("b")
    env.step(ToolCall("draw"))
    assert fork.notes == [["x", 1, "Blue", None, ["a"], None]]
    fork.step(ToolCall("draw"))
    assert fork.luck == env.luck


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 100},
        {"type": "integer", "maximum": -100},
        {"type": "integer", "minimum": 7, "maximum": 7},
    ],
)
def test_samples_keep_to_the_bounds_of_integers(schema):
    parameters = {"type": "object", "properties": {"n": schema}, "required": ["n"]}
    space = ToolSpace([ToolSpec("pick", "Picks.", parameters)], seed=0)
    for _ in range(50):
        n = json.loads(space.sample().arguments_json)["n"]
        assert schema.get("minimum", n) <= n <= schema.get("maximum", n)


def test_a_space_holds_every_action_of_its_kinds_and_no_other():
    space = desk().action_space
    for action in (ToolCall("nothing", "{"), Text(""), Final(), NoAction("refusal")):
        assert space.contains(action)
    for thing in ("write", None, ("write", "{}"), ToolCall("write", None), ToolCall(1, "{}"), 3):
        assert not space.contains(thing)
    with pytest.raises(ValueError, match="neither mask nor probability"):
        space.sample(mask=1)
