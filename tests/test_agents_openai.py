"""Models behind the APIs of OpenAI, on the real server: turns, failures, tokens.

Each name that begins with A is a line of the field reports on evaluating agents.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playing import make_task
from providers import (
    Asked,
    Cut,
    FakeProvider,
    Fault,
    Html,
    Overloaded,
    Raw,
    Reply,
    Say,
    Script,
    gold,
    in_turn,
)
from providers.played import FastTime, Played, add, played

import railgym
from env_server.registry import Registry
from railgym.actions import Final, NoAction, Text, ToolCall
from railgym.agents import ModelFailed, RunStopped, models
from railgym.agents.retry import RetryPolicy
from railgym.agents.throttle import Throttle
from railgym.agents.turns import ModelAgent
from railgym.client import Client

MATHS = "railgym/MultiverseMath-v1"
TYPEWRITER = "railgym/Typewriter-v1"
DOG = "typewriter/reference/dog"
SPECS = ["openai:gpt?", "openai:gpt?stream=false&", "chat:gpt?", "chat:gpt?stream=false&"]
DONE = Say("Done.")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture(params=SPECS, ids=["responses-streamed", "responses", "chat-streamed", "chat"])
def spec(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[Client]:
    with railgym.connect(server.address) as client:
        yield client


def agent(spec: str, provider: FakeProvider, time: FastTime | None = None) -> ModelAgent:
    """An agent that does not wait when it should."""
    time = time or FastTime()
    url = provider.url if spec.startswith("anthropic") else provider.openai_url
    found = models.find(f"{spec}base_url={url}")
    retry = RetryPolicy(clock=time, sleep=time.sleep)
    return ModelAgent(found.provider, throttle=Throttle(clock=time), retry=retry)


def run(
    client: Client, spec: str, script: Script, env: str = MATHS, task: str | None = None
) -> tuple[Played, list[Asked]]:
    with FakeProvider(script) as provider:
        episode = played(client, agent(spec, provider), env, task)
    return episode, provider.requests


def calls(*pairs: tuple[str, str], **more: Any) -> Say:
    return Say(calls=pairs, **more)


ADD = ("add", '{"a": 2, "b": 3}')


def test_the_tools_go_out_as_the_server_has_them(client: Client, spec: str):
    _, (asked,) = run(client, spec, in_turn(DONE))
    tools = next(env for env in client.envs() if env.env_id == MATHS).tools
    sent = [tool.get("function", tool) for tool in asked.body["tools"]]
    for tool, there in zip(tools, sent, strict=True):
        assert (there["name"], there["description"]) == (tool.name, tool.description)
        assert there["parameters"] == tool.parameters
    assert not any(tool.get("strict") for tool in sent)


def test_responses_keeps_nothing_at_the_provider(client: Client):
    script = in_turn(calls(ADD, thinking="I must add."), DONE)
    _, (first, second) = run(client, "openai:gpt?max_tokens=99&reasoning_effort=low&", script)
    assert first.body["store"] is False
    assert first.body["include"] == ["reasoning.encrypted_content"]
    assert first.body["max_output_tokens"] == 99
    assert first.body["reasoning"] == {"effort": "low"}
    kinds = [item.get("type", item.get("role")) for item in second.body["input"]]
    assert kinds == ["user", "reasoning", "function_call", "function_call_output"]
    sealed = [i["encrypted_content"] for i in second.body["input"] if i.get("type") == "reasoning"]
    assert all(sealed)


def test_chat_sends_thoughts_back_beside_calls(client: Client):
    _, (_, second) = run(client, "chat:r1?", in_turn(calls(ADD, thinking="I must add."), DONE))
    assert second.body["messages"][2]["reasoning_content"] == "I must add."


BLANK = ['{}""', "", "null", " \n"]


def test_a1_blank_arguments(client: Client, spec: str):
    name = "get_current_user_id"
    script = in_turn(*(calls((name, text)) for text in BLANK), DONE)
    episode, _ = run(client, spec, script, "railgym/Relational-v1")
    assert episode.actions[:4] == [ToolCall(name, text) for text in BLANK]
    assert [step.seen.info for step in episode.steps[:4]] == [{"repaired": "blank_arguments"}] * 4

    script = in_turn(*(calls(("type_letter", text)) for text in BLANK), DONE)
    episode, _ = run(client, spec, script, TYPEWRITER)
    assert episode.faults == ["bad_arguments"] * 4 + [None]


def test_a2_prose_is_an_error_of_the_model(client: Client, spec: str):
    script = in_turn(calls(("add", "two and three")), calls(ADD), DONE)
    episode, (_, second, _) = run(client, spec, script)
    assert episode.faults == ["format_error", None, None]
    assert episode.retries == []
    assert second.results == [episode.steps[0].seen.observation]
    if "messages" in second.body:  # chat templates parse what the model wrote, once more
        (call,) = second.body["messages"][2]["tool_calls"]
        assert isinstance(json.loads(call["function"]["arguments"]), dict)
        assert "two and three" in call["function"]["arguments"]


def test_a6_big_numbers_arrive_as_they_are(client: Client, spec: str):
    big = '{"a": 9007199254740993, "b":0}'
    huge = f'{{"a": {"9" * 5_000}, "b": 0}}'
    script = in_turn(calls(("add", big)), calls(("add", huge)), DONE)
    episode, _ = run(client, spec, script)
    assert episode.actions[:2] == [ToolCall("add", big), ToolCall("add", huge)]
    assert episode.faults == [None, "bad_arguments", None]


CUT = ("negate", '{"a": 5, "b')


@pytest.mark.parametrize(("stop", "text"), [("truncated", "I add:"), ("calls", "")])
def test_a7_a_cut_turn_runs_nothing(client: Client, spec: str, stop: str, text: str):
    said = Say(text, [ADD, CUT], stop, thinking="Hm.")
    episode, (_, second) = run(client, spec, in_turn(said, DONE))
    assert episode.actions == [NoAction("truncated_output", text), Final("Done.")]
    assert second.results == []
    assert second.turns == bool(text)
    assert "truncated_output" in json.dumps(second.body)
    assert [step.turn for step in episode.steps] == [1, 2]


def test_a8_tools_that_are_not_there(client: Client, spec: str):
    made_up = ("multi_tool_use.parallel", '{"tool_uses": []}')
    script = in_turn(calls(made_up, ("type_letter", '{"letter": "a"}')), DONE)
    episode, _ = run(client, spec, script)
    assert episode.faults == ["unknown_tool", "unknown_tool", None]
    assert episode.actions[0] == ToolCall(*made_up)
    assert "add" in episode.steps[0].seen.observation


def test_a8_tools_that_the_task_forbids(serve: Any):
    task = make_task(
        env_id=MATHS,
        options={"universe": "reference"},
        expected=None,
        allowed_tools=["add"],
        validators=[{"name": "must_call", "any_of": ["add"]}],
    )
    there = serve(Registry({task.task_id: task}))
    with railgym.connect(there.address) as client:
        for spec in SPECS[0], SPECS[2]:
            script = in_turn(calls(("negate", '{"a": 5}')), DONE)
            episode, (asked, _) = run(client, spec, script, MATHS, task.task_id)
            assert episode.faults == ["not_allowed", None]
            assert len(asked.body["tools"]) == 1


@pytest.mark.parametrize("ids", [None, ["", "", ""], ["same", "same", "same"]])
def test_a9_all_results_go_back_at_once(client: Client, spec: str, ids: list[str] | None):
    letters = [("type_letter", f'{{"letter": "{letter}"}}') for letter in ("d", "oo", "o")]
    script = in_turn(
        Say("Typing.", letters, ids=ids), calls(letters[0], ids=ids and [ids[0]]), DONE
    )
    episode, (_, second, *_) = run(client, spec, script, TYPEWRITER, DOG)
    assert episode.faults[:3] == [None, "tool_error", None]
    assert [step.turn for step in episode.steps] == [1, 1, 1, 2, 3]
    assert second.results == [step.seen.observation for step in episode.steps[:3]]
    assert [claim["turn"] for claim in episode.claims] == [1, 2, 3]


EMPTY = [Say(""), Say(" \n"), Say("", thinking="The answer is 5.")]


@pytest.mark.parametrize("nothing", EMPTY, ids=["nothing", "blank", "thoughts"])
def test_a11_nothing_is_told_once_and_then_ends_it(client: Client, spec: str, nothing: Say):
    episode, (_, second) = run(client, spec, in_turn(nothing, nothing, DONE))
    assert episode.faults[0] == "empty_response"
    assert episode.actions[1] == Final("")
    assert "empty_response" in json.dumps(second.body)

    script = in_turn(nothing, calls(ADD), nothing, DONE)
    episode, _ = run(client, spec, script)
    assert episode.faults == ["empty_response", None, "empty_response", None]


def test_a11_no_choices(client: Client):
    body = {"id": "1", "object": "chat.completion", "model": "gpt", "choices": []}
    script = in_turn(Raw(body), DONE)
    episode, _ = run(client, "chat:gpt?stream=false&", script)
    assert episode.faults == ["empty_response", None]
    script = in_turn(Raw([{**body, "object": "chat.completion.chunk"}, "[DONE]"]), DONE)
    episode, _ = run(client, "chat:gpt?", script)
    assert episode.faults == ["empty_response", None]


@pytest.mark.parametrize("text", ["", "I shall now call the tool."])
def test_a11_a_stop_for_calls_without_one(client: Client, text: str):
    for spec in SPECS[2:]:
        episode, _ = run(client, spec, in_turn(Say(text, stop="calls"), DONE))
        assert episode.faults == ["empty_response", None]


REFUSALS = [Say("I stop h", stop="refusal"), Say(refusal="I will not.")]


@pytest.mark.parametrize("said", REFUSALS, ids=["filter", "words"])
def test_a12_a_refusal_ends_it(client: Client, spec: str, said: Say):
    episode, requests = run(client, spec, in_turn(said, DONE))
    assert episode.actions == [NoAction("refusal", said.text or said.refusal)]
    assert episode.last.terminated
    assert len(requests) == 1


def test_a14_too_many_requests(client: Client, spec: str):
    time, limited = FastTime(), Fault(429, {"Retry-After": "7"})
    script = in_turn(limited, limited, limited, calls(ADD), DONE)
    with FakeProvider(script) as provider:
        episode = played(client, agent(spec, provider, time), MATHS, None)
    assert len(episode.steps) == 2
    assert [len(claim["retries"]) for claim in episode.claims] == [3, 0]
    assert sum(time.slept) >= 21
    first = episode.claims[0]
    assert first["queue_ms"] >= 21_000
    assert first["latency_ms"] < 7_000
    for retry in first["retries"]:
        assert (retry["status"], retry["error"]) == (429, "rate_limit_exceeded")
        assert retry["waited_ms"] >= 7_000


def ask_in_vain(client: Client, spec: str, fault: Reply) -> tuple[ModelFailed, int]:
    script: Script = lambda asked, attempt: fault  # noqa: E731
    with FakeProvider(script) as provider, pytest.raises(ModelFailed) as caught:
        played(client, agent(spec, provider), MATHS, None)
    return caught.value, len(provider.requests)


def test_a14_past_the_budget_the_trial_is_invalid(client: Client, spec: str):
    error, requests = ask_in_vain(client, spec, Fault(429, {"Retry-After": "7"}))
    assert not isinstance(error, RunStopped)
    assert requests > 3
    assert error.claim["error"]["status"] == 429
    assert len(error.claim["retries"]) == requests - 1


STOPS = [
    Fault(401),
    Fault(403),
    Fault(404),
    Fault(429, type="insufficient_quota", code="insufficient_quota"),
]


@pytest.mark.parametrize("fault", STOPS, ids=["key", "forbidden", "model", "quota"])
def test_what_no_trial_can_survive_stops_the_run(client: Client, spec: str, fault: Fault):
    error, requests = ask_in_vain(client, spec, fault)
    assert isinstance(error, RunStopped)
    assert requests == 1
    assert error.claim["error"]["status"] == fault.status


def test_a_bad_request_is_not_repeated(client: Client, spec: str):
    error, requests = ask_in_vain(client, spec, Fault(400, code="context_length_exceeded"))
    assert not isinstance(error, RunStopped)
    assert requests == 1
    assert error.claim["error"]["type"] == "context_length_exceeded"


def test_without_a_key_the_run_stops(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    for spec in ("openai:gpt", "chat:gpt", "json:gpt"):
        with pytest.raises(RunStopped, match="OPENAI_API_KEY"):
            played(client, models.find(spec), MATHS, None)


def test_a_page_in_place_of_an_answer_is_told_with_its_address(client: Client, spec: str):
    for status in 200, 404:
        error, _ = ask_in_vain(client, spec, Html(status))
        assert "<html><head><title>" in str(error)
        if status == 404 or "stream=false" not in spec:
            assert "http://127.0.0.1:" in str(error)
        if status == 200 and "stream=false" not in spec:
            assert "expected an event stream from http" in str(error)
            assert "got text/html: <html>" in str(error)


def test_a_provider_that_is_not_there_is_told_with_its_address_and_no_secret(client: Client):
    with FakeProvider(in_turn(DONE)) as provider:
        url = provider.url.replace("http://", "http://me:secret@")
    for name in ("openai", "chat", "json"):
        asked = models.find(f"{name}:m?base_url={url}/v1")
        with pytest.raises(asked.provider.errors) as caught:
            asked.provider.begin("", "", []).ask()
        message = asked.provider.failure(caught.value).message
        assert f"Connection refused at {provider.url}/v1/" in message
        assert "secret" not in message


WHOLE = Say("I add and negate.", [ADD, ("negate", '{"a": 5}')])
BREAKS = [
    Overloaded(WHOLE),
    Cut(WHOLE),
    Cut(WHOLE, ends_well=True),
    Cut(WHOLE, after_bytes=0, ends_well=True),
    Cut(WHOLE, after_bytes=40),
    Html(),
    Html(502),
    Fault(500),
    Fault(529),
]


def test_a15_what_breaks_off_is_asked_again(client: Client, spec: str):
    episode, requests = run(client, spec, in_turn(*BREAKS, WHOLE, DONE))
    assert episode.actions == [ToolCall(*ADD), ToolCall("negate", '{"a": 5}'), Final("Done.")]
    assert episode.faults == [None, None, None]
    assert [len(claim["retries"]) for claim in episode.claims] == [len(BREAKS), 0]
    assert [asked.attempt for asked in requests] == [*range(1, len(BREAKS) + 2), 1]
    overloaded = episode.retries[0]["error"]
    assert overloaded == "server_is_overloaded"


def test_a15_tokens_of_what_broke_off_count(client: Client):
    chunk = {
        "id": "1",
        "object": "chat.completion.chunk",
        "model": "local",
        "choices": [{"index": 0, "delta": {"content": "I th"}}],
        "usage": {"prompt_tokens": 70, "completion_tokens": 3, "total_tokens": 73},
    }
    later = {**chunk, "usage": {"prompt_tokens": 70, "completion_tokens": 5, "total_tokens": 75}}
    overloaded = {"error": {"message": "busy", "code": "server_is_overloaded"}}
    for stream in [chunk, later], [chunk, later, overloaded]:
        episode, _ = run(client, "chat:local?", in_turn(Raw(stream), DONE))
        (retry,) = episode.retries
        assert (retry["usage"]["input"], retry["usage"]["output"]) == (70, 5)
        assert episode.tokens["output"] == 5 + DONE.usage["output"]
    assert retry["error"] == "server_is_overloaded"


def test_an_error_in_place_of_an_answer_is_asked_again(client: Client):
    words = "the upstream is overloaded"
    for spec in SPECS[1], SPECS[3]:
        for error in ({"message": words, "code": 503}, words):
            episode, _ = run(client, spec, in_turn(Raw({"error": error}), DONE))
            assert episode.actions == [Final("Done.")]
            assert len(episode.retries) == 1
    failed = {
        "id": "r",
        "object": "response",
        "model": "gpt",
        "status": "failed",
        "output": [],
        "error": {"code": "server_error", "message": "it broke"},
        "usage": None,
    }
    episode, _ = run(client, SPECS[1], in_turn(Raw(failed), DONE))
    assert [retry["error"] for retry in episode.retries] == ["server_error"]


def test_a28_tokens_in_disjoint_buckets(client: Client, spec: str):
    said = {"input": 1010, "cache_read": 9000, "output": 50, "reasoning": 20}
    episode, _ = run(client, spec, in_turn(Say("Done.", usage=said)))
    assert episode.claims[0]["usage"] == add([said])


def test_a28_as_openai_writes_it(client: Client):
    chat = {
        "id": "c",
        "object": "chat.completion",
        "model": "gpt-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "5"}}],
        "usage": {
            "prompt_tokens": 10010,
            "completion_tokens": 50,
            "total_tokens": 10060,
            "prompt_tokens_details": {"cached_tokens": 9000},
            "completion_tokens_details": {"reasoning_tokens": 30},
        },
    }
    part = {"type": "output_text", "text": "5", "annotations": []}
    responses = {
        "id": "r",
        "object": "response",
        "model": "gpt-1",
        "status": "completed",
        "output": [{"type": "message", "id": "m", "role": "assistant", "content": [part]}],
        "usage": {
            "input_tokens": 10010,
            "input_tokens_details": {"cached_tokens": 9000},
            "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 30},
            "total_tokens": 10060,
        },
    }
    expected = add([{"input": 1010, "cache_read": 9000, "output": 50, "reasoning": 30}])
    for spec, body in (SPECS[3], chat), (SPECS[1], responses):
        episode, _ = run(client, spec, in_turn(Raw(body)))
        assert episode.claims[0]["usage"] == expected
        assert episode.claims[0]["answered_by"] == "gpt-1"


def test_a_server_that_says_nothing_of_tokens(client: Client):
    for spec in SPECS[2:]:
        episode, _ = run(client, spec, in_turn(Say("Done.", usage=None)))
        assert episode.claims[0]["usage"] is None


def test_a_server_that_knows_no_stream_options(client: Client):
    def old(asked: Asked, attempt: int) -> Reply:
        unknown = Fault(400, message="Unrecognized request argument: stream_options")
        return unknown if "stream_options" in asked.body else in_words(asked, attempt)

    in_words = in_turn(calls(ADD), DONE)
    episode, requests = run(client, "chat:old?", old)
    assert episode.actions == [ToolCall(*ADD), Final("Done.")]
    assert len(requests) == 3
    assert [claim["usage"] for claim in episode.claims] == [None, None]


def test_a_model_that_does_not_reason_is_asked_for_nothing_sealed(client: Client):
    def plain(asked: Asked, attempt: int) -> Reply:
        refused = Fault(400, message="Encrypted content is not supported with this model.")
        return refused if "include" in asked.body else in_words(asked, attempt)

    for spec in SPECS[:2]:
        in_words = in_turn(calls(ADD), DONE)
        episode, requests = run(client, spec, plain)
        assert episode.actions == [ToolCall(*ADD), Final("Done.")]
        assert len(requests) == 3


def test_calls_that_all_have_the_same_index(client: Client):
    def chunk(stop: str | None, *pieces: dict[str, Any]) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"tool_calls": list(pieces)}, "finish_reason": stop}
        return {"id": "1", "model": "local", "choices": [choice]}

    first = {"index": 0, "id": "x", "function": {"name": "add", "arguments": '{"a": 2,'}}
    more = {"index": 0, "function": {"arguments": ' "b": 3}'}}
    second = {"index": 0, "id": "y", "function": {"name": "negate", "arguments": '{"a": 5}'}}
    third = {"function": {"name": "negate", "arguments": '{"a": 6}'}}
    stream = [chunk(None, first), chunk(None, more), chunk(None, second), chunk("stop", third)]
    episode, _ = run(client, "chat:local?", in_turn(Raw([*stream, "[DONE]"]), DONE))
    negated = [ToolCall("negate", f'{{"a": {n}}}') for n in (5, 6)]
    assert episode.actions == [ToolCall(*ADD), *negated, Final("Done.")]


def test_arguments_that_come_as_an_object_are_written_out(client: Client):
    call = {"id": "c", "type": "function", "index": 0}
    call["function"] = {"name": "add", "arguments": {"a": 2, "b": 3}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body: dict[str, Any] = {"id": "r", "model": "m"}
    whole = body | {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    chunk = body | {"choices": [{"index": 0, "delta": message, "finish_reason": "tool_calls"}]}
    for spec, reply in zip(SPECS[2:], ([chunk], whole), strict=True):
        episode, _ = run(client, spec, in_turn(Raw(reply), DONE))
        assert episode.actions == [ToolCall(*ADD), Final("Done.")]


def test_a_failure_without_a_word_is_asked_again(client: Client):
    failed = {"id": "r", "object": "response", "model": "m", "status": "failed", "output": []}
    streamed = [{"type": "response.failed", "response": failed}]
    for spec, reply in zip(SPECS[:2], (streamed, failed), strict=True):
        episode, _ = run(client, spec, in_turn(Raw(reply), DONE))
        assert (len(episode.retries), episode.actions) == (1, [Final("Done.")])


def test_an_answer_in_parts(client: Client):
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Done."}]
    body = {"id": "1", "model": "local", "choices": [{"message": {"content": parts}}]}
    nobody = {**body, "choices": [{"finish_reason": "stop"}]}
    episode, _ = run(client, "chat:local?stream=false&", in_turn(Raw(nobody), Raw(body)))
    assert episode.actions == [NoAction("empty_response"), Final("Done.")]


def test_half_characters_do_no_harm(client: Client, spec: str):
    half = "\ud83d"
    odd = calls(("add", f'{{"a": "{half}"}}'), ("add", half), text=half, thinking=half)
    episode, _ = run(client, spec, in_turn(odd, Say(f"Done {half}")))
    assert episode.faults == ["bad_arguments", "format_error", None]


def test_json_is_parsed_by_the_server(client: Client):
    said = 'So:\n{"thought": "", "action": "add", "action_input": {"a": 2, "b": 9007199254740993}}'
    broken = '{"thought": "'
    final = '{"thought": "", "action": "final", "action_input": "5"}'
    script = in_turn(Say(said), Say(broken), Say("", stop="truncated"), Say(""), Say(final))
    episode, requests = run(client, "json:gemma?", script)
    assert episode.actions[:2] == [Text(said), Text(broken)]
    faults = [None, "format_error", "truncated_output", "empty_response", None]
    assert episode.faults == faults
    assert episode.steps[0].seen.info == {"repaired": "unwrapped"}
    assert "tools" not in requests[0].body
    assert '"multiply"' not in requests[0].system
    assert "multiply: " in requests[0].system
    roles = [message["role"] for message in requests[-1].body["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert requests[1].told == [episode.steps[0].seen.observation]


def test_parameters_go_out_as_they_are(client: Client):
    spec = "chat:gpt?temperature=0&top_k=40&max_tokens=7&stop=[%22x%22]&"
    episode, (asked,) = run(client, spec, in_turn(DONE))
    sent = {"temperature": 0, "top_k": 40, "max_tokens": 7, "stop": ["x"]}
    assert {key: asked.body[key] for key in sent} == sent
    assert episode.claims[0]["parameters"] == sent


def test_openai_itself_has_names_of_its_own(client: Client, monkeypatch: pytest.MonkeyPatch):
    names = {"openai": "max_output_tokens", "chat": "max_completion_tokens"}
    with FakeProvider(in_turn(DONE, DONE)) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.openai_url)
        for name in names:
            episode = played(client, models.find(f"{name}:gpt?max_tokens=7"), MATHS, None)
            assert episode.claims[0]["provider"] == "openai"
    for asked, name in zip(provider.requests, names.values(), strict=True):
        assert asked.body[name] == 7
        assert "max_tokens" not in asked.body


ALL = ["anthropic:claude?", "openai:gpt?", "chat:gpt?stream=false&", "json:gemma?"]


@pytest.mark.parametrize("spec", ALL)
def test_the_reference_tasks_to_the_count(client: Client, registry: Any, spec: str):
    tasks = [
        task
        for task in registry.tasks.values()
        if task.env_id == MATHS and "reference" in task.tags
    ]
    assert len(tasks) == 20
    right, faults = gold(registry), [Fault(429, {"Retry-After": "1"}), Fault(500)]

    def script(asked: Asked, attempt: int) -> Reply:
        """Fails before every third answer, once or twice."""
        failures = faults[: len(asked.instruction) % 3] if asked.turns == 1 else []
        return failures[attempt - 1] if attempt <= len(failures) else right(asked, attempt)

    with FakeProvider(script) as provider:
        model = agent(spec, provider)
        episodes = [played(client, model, MATHS, task.task_id) for task in tasks]
    assert [episode.last.reward for episode in episodes] == [1.0] * 20
    replies = [asked.reply for asked in provider.requests]
    said = add(reply.usage for reply in replies if isinstance(reply, Say))
    assert add(episode.tokens for episode in episodes) == said
    assert all(tokens for bucket, tokens in said.items() if bucket != "cache_write_1h")
    failed = [reply.status for reply in replies if isinstance(reply, Fault)]
    assert failed
    assert [r["status"] for e in episodes for r in e.retries] == failed
    turns = [len(task.gold) for task in tasks]
    assert [len(episode.claims) for episode in episodes] == turns
