"""Agents: the small interface, agents by name, prompts, and turns where no API is needed."""

import hashlib
import importlib.util
import inspect
import json
import runpy
import subprocess
import sys
import textwrap
import time

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import railgym
from env_server.cli.agents import find_agent
from env_server.cli.exits import Failure as CommandFailure
from railgym import agents
from railgym.actions import Final, NoAction, Text, ToolCall, Transition
from railgym.agents import Briefing, ModelFailed, Move, RunStopped, models, play, prompts
from railgym.agents.model import Answer, ToolUse, Usage, distinct_id, echoed_name
from railgym.agents.turns import ModelAgent
from railgym.spaces import ToolShaping, ToolSpace, ToolSpec

TOOLS = [ToolSpec("press", "Presses a key.", {"type": "object", "properties": {}})]


def briefing(instruction="Press.", space=None):
    return Briefing(instruction, space or ToolSpace(TOOLS), '{"result":null}', {}, 0)


def seen(observation="{}", terminated=False):
    return Transition(observation, 0.0, terminated, False, {})


@pytest.fixture(scope="module")
def client(server):
    with railgym.connect(server.address) as client:
        yield client


# The interface.


@pytest.mark.parametrize(("name", "reward"), [("echo", 0.0), ("Typist", 1.0)])
def test_an_agent_is_one_function_or_one_class(client, tmp_path, name, reward):
    """As the docstring of the package has it."""
    blocks = [part for part in inspect.getdoc(agents).split("\n\n") if part.startswith("    ")]
    own = tmp_path / "own.py"
    own.write_text("import railgym\n" + textwrap.dedent("\n\n".join(blocks)), encoding="utf-8")
    agent = runpy.run_path(str(own))[name]
    with client.session(task_id="typewriter/reference/dog") as session:
        observation, info = session.reset(seed=0)
        space, goal = session.env.action_space, session.task.instruction
        policy = agent(Briefing(goal, space, observation, info, 0))
        last = play(policy, lambda move: session.step(move.action))
    assert last.reward == reward
    assert last.terminated


def test_play_makes_moves_of_actions():
    claim = {"kind": "note"}
    rest = [ToolCall("a"), Move(ToolCall("b"), 2, claim), Final("c")]
    taken = []

    def step(move):
        taken.append(move)
        return seen(terminated=isinstance(move.action, Final))

    play(lambda _: rest.pop(0), step)
    assert taken == [Move(ToolCall("a"), 0, None), Move(ToolCall("b"), 2, claim), Move(Final("c"))]


def test_a_stopped_run_is_a_failed_model():
    error = RunStopped("no key", {"kind": "model_call"})
    assert isinstance(error, ModelFailed)
    assert error.claim == {"kind": "model_call"}
    assert ModelFailed("x").claim is None


# Agents by name.


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("anthropic:claude-x", ("anthropic", "messages", "claude-x")),
        ("openai:gpt-x", ("openai", "responses", "gpt-x")),
        ("chat:llama3:8b?base_url=http://localhost:1/v1", ("", "chat", "llama3:8b")),
        ("json:org/model?base_url=http://localhost:1/v1", ("", "json", "org/model")),
    ],
)
def test_every_provider_is_found_and_says_what_it_is(spec, told):
    agent = models.find(spec)
    about = agent.describe()
    assert (about["api"], about["model"]) == told[1:]
    assert about["provider"].startswith(told[0])
    prompt = prompts.JSON if told[1] == "json" else prompts.TOOLS
    assert about["prompt_sha256"] == hashlib.sha256(prompt.encode()).hexdigest()
    assert "localhost" not in json.dumps(about)


def test_values_are_json_where_they_are():
    spec = (
        'anthropic:m?temperature=0&top_p=0.5&max_tokens=9&stop_sequences=["a"]'
        "&thinking=adaptive&service_tier=auto&speed=null&x=a%26b"
    )
    assert models.find(spec).describe()["parameters"] == {
        "temperature": 0,
        "top_p": 0.5,
        "max_tokens": 9,
        "stop_sequences": ["a"],
        "thinking": "adaptive",
        "service_tier": "auto",
        "speed": None,
        "x": "a&b",
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("anthropic:", "a colon and a model"),
        ("anthropic", "a colon and a model"),
        ("gemini:x", "anthropic|openai|chat|json"),
        ("anthropic:m?temperature", "key=value"),
        ("anthropic:m?seed=1&seed=2", "each key once"),
        ("anthropic:m?base_url=7", "text for base_url"),
        ("chat:m?base_url=localhost:8000/v1", "for base_url, got 'localhost:8000/v1'"),
        ("chat:m?base_url=http:///v1", "expected http:// or https:// and a host"),
        ("anthropic:m?prompt=/no/such/file", "the prompt cannot be read"),
        ("openai:m?api_key=sk-1", "OPENAI_API_KEY"),
    ],
)
def test_a_bad_name_says_what_was_expected(spec, expected):
    with pytest.raises(ValueError, match=r".") as e:
        models.find(spec)
    assert expected in str(e.value)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_is_no_json_is_text(number):
    assert models.find(f"anthropic:m?x={number}").describe()["parameters"]["x"] == number


def test_a_missing_sdk_is_named_before_the_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ValueError, match=r"pip install 'railgym\[openai\]'"):
        models.find("chat:m")


def test_agents_of_one_model_share_a_throttle():
    one = models.find("anthropic:shared?temperature=0").throttle
    assert models.find("anthropic:shared?temperature=1").throttle is one
    assert models.find("anthropic:other").throttle is not one
    assert models.find("anthropic:shared?base_url=http://x").throttle is not one


def test_a_prompt_of_ones_own(tmp_path):
    (tmp_path / "prompt.txt").write_text("Be quick.\n$tools", encoding="utf-8")
    agent = models.find(f"anthropic:m?prompt={tmp_path / 'prompt.txt'}")
    assert agent.prompt == "Be quick.\n$tools"
    assert agent.describe()["prompt_sha256"] == hashlib.sha256(agent.prompt.encode()).hexdigest()
    assert (
        agent.describe()["prompt_sha256"] != models.find("anthropic:m").describe()["prompt_sha256"]
    )
    filled = prompts.fill(agent.prompt, TOOLS)
    assert filled == 'Be quick.\npress: Presses a key.\n{"type": "object", "properties": {}}'


def test_finding_a_model_imports_no_sdk():
    code = (
        "import sys; from railgym.agents.models import PROVIDERS, find;"
        "[find(p + ':m').describe() for p in PROVIDERS];"
        "assert not {'anthropic', 'openai', 'httpx2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("extra", sorted({home.extra for home in models.PROVIDERS.values()}))
def test_the_sdks_are_installed_for_the_tests(extra):
    assert importlib.util.find_spec(extra)


def test_the_command_finds_model_agents(registry):
    agent = find_agent("anthropic:m?temperature=0", registry, ToolShaping())(None)
    assert isinstance(agent, ModelAgent)
    with pytest.raises(CommandFailure, match="a colon and a model"):
        find_agent("anthropic:", registry, ToolShaping())
    with pytest.raises(CommandFailure, match=r"anthropic\|openai\|chat\|json:MODEL"):
        find_agent("nobody", registry, ToolShaping())


def test_every_prompt_says_how_to_end():
    assert "$tools" in prompts.JSON
    assert '"action": "final"' in prompts.JSON
    assert "without a call" in prompts.TOOLS.replace("\n", " ")


# Turns, whatever the API.


class Scripted:
    """A provider whose answers are given; notes what it is told."""

    provider = "scripted"
    errors = ()

    def __init__(self, *answers, api="messages"):
        self.api = api
        self.model = "m"
        self.answers = list(answers)
        self.notes = []

    def describe(self):
        return {"parameters": {}}

    def begin(self, system, instruction, tools):
        self.notes.append(instruction)
        return self

    def ask(self):
        return self.answers.pop(0)

    def give(self, results):
        self.notes.append([(use.id, text) for use, text in results])

    def tell(self, text):
        self.notes.append(text)

    def drop_calls(self):
        self.notes.append("dropped")


def answer(text="", *names, stop="end", usage=None, arguments="{}"):
    calls = [ToolUse(f"id-{name}", name, arguments) for name in names]
    return Answer(calls, text, stop, stop, usage, "r", "m-1")


def test_a_turn_is_played_call_by_call():
    provider = Scripted(answer("So:", "a", "b", stop="calls", usage=Usage(1)), answer("Done."))
    policy = ModelAgent(provider)(briefing())
    first, second = policy(None), policy(seen("1"))
    assert (first.action, first.turn, first.claim["usage"]["input"]) == (ToolCall("a", "{}"), 1, 1)
    assert second == Move(ToolCall("b", "{}"), 1, None)
    assert provider.notes == ['Press.\n\n{"result":null}']
    last = policy(seen("2"))
    assert (last.action, last.turn) == (Final("Done."), 2)
    assert provider.notes[1:] == [[("id-a", "1"), ("id-b", "2")]]


def test_calls_are_run_whatever_the_stop_says():
    assert ModelAgent(Scripted(answer("", "a")))(briefing())(None).action == ToolCall("a", "{}")


def test_in_the_json_protocol_words_are_for_the_server():
    said = ['{"action": "press"}', "", '{"action": "final"}']
    provider = Scripted(*map(answer, said), api="json")
    policy = ModelAgent(provider)(briefing())
    assert policy(None).action == Text(said[0])
    assert policy(seen("1")).action == NoAction("empty_response", "")
    assert policy(seen("2")).action == Text(said[2])
    assert provider.notes[1:] == ["1", "dropped", "2"]


def test_without_a_task_the_first_observation_is_what_a_model_is_told():
    provider = Scripted(answer("Done."))
    ModelAgent(provider)(briefing(""))
    assert provider.notes == ['{"result":null}']


def test_a_model_plays_no_plain_environment():
    with pytest.raises(ValueError, match="environments with tools"):
        ModelAgent(Scripted())(briefing(space=gymnasium.spaces.Discrete(2)))


TEXT = st.text(st.characters(), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(value=st.dictionaries(TEXT, JSON, max_size=4), data=st.data())
@settings(deadline=None, max_examples=60)
def test_every_prefix_of_an_object_is_cut_and_the_whole_is_not(value, data):
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    length = data.draw(st.integers(1, len(text) - 1))

    def first(arguments):
        provider = Scripted(answer("", "a", stop="calls", arguments=arguments))
        return ModelAgent(provider)(briefing())(None).action

    assert first(text) == ToolCall("a", text)
    assert first(text[:length]) == NoAction("truncated_output", "")


def test_a_cut_of_many_quotes_is_seen_at_once():
    text = '{"text": "' + '\\"' * 50_000
    policy = ModelAgent(Scripted(answer("", "a", stop="calls", arguments=text)))(briefing())
    began = time.monotonic()
    assert policy(None).action == NoAction("truncated_output", "")
    assert time.monotonic() - began < 2


@given(given_ids=st.lists(st.none() | st.text(st.sampled_from("ab_1 ."), max_size=3), max_size=9))
@settings(deadline=None, max_examples=60)
def test_ids_of_calls_are_distinct_and_kept_where_they_can_be(given_ids):
    taken = set()
    ids = [distinct_id(given_id, taken) for given_id in given_ids]
    assert len(set(ids)) == len(ids)
    assert set(ids) == taken
    assert all(id_.replace("_", "").isalnum() or set(id_) == {"_"} for id_ in ids)
    if given_ids and given_ids[0] and given_ids[0].replace("_", "a").isalnum():
        assert ids[0] == given_ids[0]


def test_names_go_back_as_apis_take_them():
    names = ["type_letter", "multi_tool_use.parallel", "", "x" * 99]
    assert [echoed_name(name) for name in names] == [
        "type_letter",
        "multi_tool_use_parallel",
        "_",
        "x" * 64,
    ]
