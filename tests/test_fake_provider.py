"""The fake provider, judged by the official SDKs: they must understand all that it says."""

import json
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai
import pytest
from providers import (
    Cut,
    FakeProvider,
    Fault,
    Html,
    Overloaded,
    Raw,
    Say,
    Script,
    Slow,
    always,
    gold,
    in_turn,
)

CALLS = [("add", '{"a": 2,  "b": 9007199254740993}'), ("negate", '{"a": 5.0}')]
USAGE = {"input": 10, "cache_read": 9000, "cache_write_5m": 1000, "output": 50, "reasoning": 20}
SAID = Say("Two calls.", CALLS, thinking="I must add them first.", usage=USAGE)
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}


class Heard(NamedTuple):
    """What an SDK made of an answer; the tokens are all that went in, and all that came out."""

    text: str
    calls: list[tuple[str, Any]]
    thinking: str
    stop: str
    tokens: tuple[int, int, int, int]
    ids: list[str]


def messages(url: str, stream: bool, history: list[Any] | None = None) -> Heard:
    with anthropic.Anthropic(base_url=url, api_key="test", max_retries=0) as client:
        asked = {
            "model": "claude",
            "max_tokens": 1000,
            "messages": history or [{"role": "user", "content": "Add."}],
            "tools": [{"name": "add", "input_schema": SCHEMA}],
        }
        if stream:
            with client.messages.stream(**asked) as events:
                answer = events.get_final_message()
        else:
            answer = client.messages.create(**asked)
    blocks = {kind: [b for b in answer.content if b.type == kind] for kind in KINDS}
    usage = answer.usage
    came = (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    return Heard(
        "".join(block.text for block in blocks["text"]),
        [(block.name, block.input) for block in blocks["tool_use"]],
        "".join(block.thinking for block in blocks["thinking"]),
        answer.stop_reason,
        (*came, usage.output_tokens),
        [block.id for block in blocks["tool_use"]],
    )


KINDS = ("text", "tool_use", "thinking")


def responses(url: str, stream: bool, history: list[Any] | None = None) -> Heard:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="test", max_retries=0) as client:
        asked = {
            "model": "gpt",
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "input": history or [{"role": "user", "content": "Add."}],
            "tools": [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}],
        }
        if stream:
            with client.responses.stream(**asked) as events:
                answer = events.get_final_response()
        else:
            answer = client.responses.create(**asked)
    calls = [item for item in answer.output if item.type == "function_call"]
    thoughts = [part for item in answer.output if item.type == "reasoning" for part in item.summary]
    details = answer.usage.input_tokens_details
    cached, written = details.cached_tokens, details.cache_write_tokens
    return Heard(
        answer.output_text,
        [(call.name, json.loads(call.arguments)) for call in calls],
        "".join(part.text for part in thoughts),
        answer.status,
        (
            answer.usage.input_tokens - cached - written,
            cached,
            written,
            answer.usage.output_tokens,
        ),
        [call.call_id for call in calls],
    )


def chat(url: str, stream: bool, history: list[Any] | None = None) -> Heard:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="test", max_retries=0) as client:
        function = {"name": "add", "parameters": SCHEMA}
        asked = {
            "model": "gpt",
            "messages": history or [{"role": "user", "content": "Add."}],
            "tools": [{"type": "function", "function": function}],
        }
        if stream:
            options = {"include_usage": True}
            with client.chat.completions.stream(**asked, stream_options=options) as events:
                answer = events.get_final_completion()
        else:
            answer = client.chat.completions.create(**asked)
    choice, details = answer.choices[0], answer.usage.prompt_tokens_details
    cached, written = details.cached_tokens, details.cache_write_tokens
    calls = choice.message.tool_calls or []
    return Heard(
        choice.message.content or "",
        [(call.function.name, json.loads(call.function.arguments)) for call in calls],
        choice.message.reasoning_content if hasattr(choice.message, "reasoning_content") else "",
        choice.finish_reason,
        (
            answer.usage.prompt_tokens - cached - written,
            cached,
            written,
            answer.usage.completion_tokens,
        ),
        [call.id for call in calls],
    )


ASK = {"messages": messages, "responses": responses, "chat": chat}
STOPS = {
    "calls": {"messages": "tool_use", "responses": "completed", "chat": "tool_calls"},
    "end": {"messages": "end_turn", "responses": "completed", "chat": "stop"},
    "truncated": {"messages": "max_tokens", "responses": "incomplete", "chat": "length"},
    "refusal": {"messages": "refusal", "responses": "incomplete", "chat": "content_filter"},
}

RAISES: dict[str, dict[str, Any]] = {
    "messages": {},
    "responses": {"truncated": RuntimeError, "refusal": RuntimeError},
    "chat": {
        "truncated": openai.LengthFinishReasonError,
        "refusal": openai.ContentFilterFinishReasonError,
    },
}
"""What the streaming helpers of the SDKs raise for a stop that is no end."""


@pytest.fixture(params=ASK)
def api(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


def ask(api: str, stream: bool, script: Script) -> Heard:
    with FakeProvider(script) as provider:
        return ASK[api](provider.url, stream)


def test_the_sdk_hears_all_that_is_said(api: str, stream: bool):
    heard = ask(api, stream, always(SAID))
    assert heard.text == SAID.text
    assert heard.calls == [(name, json.loads(text)) for name, text in CALLS]
    assert heard.thinking == SAID.thinking
    assert heard.tokens == (10, 9000, 1000, 50)
    assert len(set(heard.ids)) == 2


@pytest.mark.parametrize("stop", STOPS)
def test_the_sdk_hears_why_it_ends(api: str, stream: bool, stop: str):
    calls = CALLS if stop == "calls" else []
    if stream and stop in RAISES[api]:
        with pytest.raises(RAISES[api][stop]):
            ask(api, stream, always(Say("Word.", calls, stop)))
        return
    assert ask(api, stream, always(Say("Word.", calls, stop))).stop == STOPS[stop][api]


@pytest.mark.parametrize("status", [401, 404, 429, 500, 529])
def test_the_sdk_knows_the_errors(api: str, stream: bool, status: int):
    sdk = anthropic if api == "messages" else openai
    with pytest.raises(sdk.APIStatusError) as caught:
        ask(api, stream, always(Fault(status, {"Retry-After": "7"})))
    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == "7"
    expected = {401: sdk.AuthenticationError, 404: sdk.NotFoundError, 429: sdk.RateLimitError}
    assert isinstance(caught.value, expected.get(status, sdk.InternalServerError))


def test_a_stream_can_break_down_after_its_200(api: str):
    sdk = anthropic if api == "messages" else openai
    with FakeProvider(always(Overloaded(SAID))) as provider, pytest.raises(Exception) as caught:  # noqa: PT011
        ASK[api](provider.url, True)
    if api == "responses":  # this helper goes on to the end, and misses it
        assert "response.completed" in str(caught.value)
        return
    assert isinstance(caught.value, sdk.APIError)
    assert "overloaded" in str(caught.value)


def test_the_break_down_of_a_responses_stream_is_an_event_of_its_own():
    with FakeProvider(always(Overloaded(SAID))) as provider:
        client = openai.OpenAI(base_url=provider.openai_url, api_key="test", max_retries=0)
        with client, client.responses.create(model="gpt", input="Add.", stream=True) as events:
            *_, last = events
    assert (last.type, last.code) == ("error", "server_is_overloaded")


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "messages": ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}),
    "responses": ("/v1/responses", {"input": "?"}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "?"}]}),
}


def test_a_connection_can_die_in_the_middle_of_a_call(api: str, stream: bool):
    def post() -> str:
        body = {"model": "any", "stream": stream, **fields}
        return httpx2.post(provider.url + path, json=body, headers={"x-api-key": "test"}).text

    path, fields = BODIES[api]
    script = in_turn(Cut(SAID), Cut(SAID, ends_well=True), Cut(SAID, 30, ends_well=True), SAID)
    with FakeProvider(script) as provider:
        with pytest.raises(httpx2.RemoteProtocolError):
            post()
        half, bit, whole = post(), post(), post()
    assert len(bit) == 30
    assert "add" in half
    assert len(half) < len(whole)
    if stream:
        assert "negate" in half
        assert "5.0}" not in half
    assert [asked.attempt for asked in provider.requests] == [1, 2, 3, 4]


def test_it_can_be_slow_and_speak_html(api: str, stream: bool):
    with FakeProvider(in_turn(Slow(0.2, Say("Late.")), Html())) as provider:
        assert ASK[api](provider.url, stream).text == "Late."
        with pytest.raises(Exception):  # noqa: B017, PT011
            ASK[api](provider.url, stream)


def test_it_sends_what_it_is_given(api: str):
    body: Any = {"choices": [], "content": [], "output": [], "usage": None}
    nothing = pytest.raises((AttributeError, IndexError))
    with FakeProvider(always(Raw(body))) as provider, nothing:
        ASK[api](provider.url, False)


def test_attempts_begin_anew_after_a_whole_answer(api: str):
    with FakeProvider(in_turn(SAID, SAID)) as provider:
        ASK[api](provider.url, False)
        ASK[api](provider.url, False)
    assert [asked.attempt for asked in provider.requests] == [1, 1]
    assert provider.requests[0].instruction == "Add."


BAD_HISTORIES = {
    "messages": [
        {"role": "user", "content": "Add."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}],
        },
        {"role": "user", "content": "And?"},
    ],
    "responses": [
        {"role": "user", "content": "Add."},
        {"type": "function_call", "call_id": "a", "name": "b", "arguments": "{}"},
        {"role": "user", "content": "And?"},
    ],
    "chat": [
        {"role": "user", "content": "Add."},
        {
            "role": "assistant",
            "tool_calls": [
                {"type": "function", "id": "a", "function": {"name": "b", "arguments": "{}"}}
            ],
        },
        {"role": "user", "content": "And?"},
    ],
}


def test_a_call_without_a_result_is_refused(api: str, stream: bool):
    sdk = anthropic if api == "messages" else openai
    with FakeProvider(always(SAID)) as provider, pytest.raises(sdk.BadRequestError):
        ASK[api](provider.url, stream, BAD_HISTORIES[api])
    assert provider.requests == []


def test_without_a_key_there_is_no_answer():
    with FakeProvider(always(SAID)) as provider:
        answer = httpx2.post(f"{provider.openai_url}/responses", json={"input": "?"})
    assert answer.status_code == 401


def test_an_error_in_a_script_comes_out():
    def script(asked: Any, attempt: int) -> Any:
        raise KeyError("what the test did wrong")

    def wrong() -> None:
        with FakeProvider(script) as provider, pytest.raises(openai.InternalServerError):
            chat(provider.url, False)

    with pytest.raises(KeyError, match="what the test did wrong"):
        wrong()


def test_gold_finds_its_task_and_plays_it(registry: Any):
    task = registry.task("multiverse_math/reference/01")
    history = [{"role": "user", "content": f"Please: {task.instruction}"}]
    with FakeProvider(gold(registry)) as provider:
        assert chat(provider.url, False, history).calls == [("add", {"a": 2, "b": 3})]
