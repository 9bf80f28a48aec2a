"""Anthropic's models against a provider that is a real HTTP server, and a real Railgym server."""

import hashlib
import json
import threading

import anthropic
import httpx2
import pytest
from playing import make_task
from providers import Cut, FakeProvider, Fault, Html, Overloaded, Say, always, gold, in_turn
from providers.pieces import pieces
from providers.played import logged, played

import railgym
from env_server.registry import Registry
from railgym.actions import Final, NoAction, ToolCall
from railgym.agents import ModelFailed, RunStopped, play, prompts
from railgym.agents.models import find
from railgym.agents.retry import RetryPolicy
from railgym.agents.throttle import Throttle
from railgym.agents.turns import ModelAgent

DOG = "typewriter/reference/dog"


@pytest.fixture(scope="module")
def client(server):
    with railgym.connect(server.address) as client:
        yield client


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self):
        self.now = 0.0
        self.waits = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


def agent_of(provider, query="", clock=None, **budget):
    """An agent that waits by a clock of its own."""
    clock = clock or Clock()
    model = find(f"anthropic:test-model?base_url={provider.url}{query}").provider
    retry = RetryPolicy(**budget, clock=clock, sleep=clock.sleep, draw=lambda: 0.5)
    return ModelAgent(model, throttle=Throttle(clock=clock), retry=retry)


def run(client, script, query="", task_id=DOG, **rest):
    with FakeProvider(script) as provider:
        episode = played(client, agent_of(provider, query, **rest), None, task_id)
    return episode, provider


def letter(text):
    return "type_letter", json.dumps({"letter": text})


def kinds(episode):
    return [type(action) for action in episode.actions]


def seen(episode, step):
    return json.loads(episode.steps[step].seen.observation)


@pytest.mark.parametrize("most", [1, 3])
def test_the_gold_solution_of_a_model_is_that_of_the_task(client, registry, most):
    episode, provider = run(client, gold(registry, calls_per_turn=most, thinking="Let me see."))
    assert episode.last.reward == 1
    assert [step.turn for step in episode.steps] == ([1, 2, 3, 4] if most == 1 else [1, 1, 1, 2])
    assert [claim["turn"] for claim in episode.claims] == list(range(1, len(episode.claims) + 1))
    assert all(asked.stream for asked in provider.requests)


def test_schemas_and_observations_are_sent_unchanged(client, registry):
    _, provider = run(client, gold(registry))
    tools = next(e.tools for e in client.envs() if e.env_id == "railgym/Typewriter-v1")
    last = provider.requests[-1]
    sent = [(t["name"], t["description"], t["input_schema"]) for t in last.body["tools"]]
    assert sent == [tuple(tool) for tool in tools]
    assert last.results == ['{"result":"d"}', '{"result":"do"}', '{"result":"dog"}']
    assert last.instruction.endswith('\n\n{"result":""}')


def test_a_claim_says_all_that_is_known_of_a_call(client):
    usage = {"input": 10, "cache_read": 9000, "cache_write_5m": 600, "cache_write_1h": 400}
    usage |= {"output": 50, "reasoning": 7}
    said = Say("No.", usage=usage, model="test-model-2026")
    episode, _ = run(client, always(said), "&temperature=0&max_tokens=99")
    (claim,) = episode.claims
    assert claim.pop("latency_ms") == 0  # by the clock of the test
    assert claim.pop("queue_ms") == 0
    assert claim.pop("response_id").startswith("msg_")
    assert claim == {
        "kind": "model_call",
        "turn": 1,
        "provider": "anthropic",
        "api": "messages",
        "model": "test-model",
        "answered_by": "test-model-2026",
        "parameters": {"max_tokens": 99, "temperature": 0},
        "prompt_sha256": hashlib.sha256(prompts.TOOLS.encode()).hexdigest(),
        "usage": usage,
        "retries": [],
        "stop": "end_turn",
        "error": None,
    }


def test_usage_that_the_provider_does_not_tell_is_null(client):
    episode, _ = run(client, always(Say("No.", usage=None)))
    assert episode.claims[0]["usage"] is None


def test_parameters_reach_the_api(client):
    query = '&thinking=2048&reasoning_effort=low&top_p=0.5&metadata={"user_id": "x"}'
    _, provider = run(client, always(Say("No.")), query)
    body = provider.requests[0].body
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert body["output_config"] == {"effort": "low"}
    assert (body["top_p"], body["metadata"]) == (0.5, {"user_id": "x"})
    _, provider = run(client, always(Say("No.")), "&thinking=adaptive")
    assert provider.requests[0].body["thinking"] == {"type": "adaptive"}


@pytest.mark.parametrize("query", ["&stream=false", "&cache_ttl=1d"])
def test_what_cannot_be_is_refused_before_anything_is_sent(query):
    with pytest.raises(ValueError, match=r"stream|cache_ttl"):
        find(f"anthropic:m?base_url=http://127.0.0.1:1{query}")


@pytest.mark.parametrize(
    ("query", "mark"),
    [
        ("", {"type": "ephemeral"}),
        ("&cache_ttl=1h", {"type": "ephemeral", "ttl": "1h"}),
    ],
)
def test_the_prompt_is_cached_up_to_the_latest_message(client, registry, query, mark):
    _, provider = run(client, gold(registry), query)
    for asked in provider.requests:
        assert asked.body["system"][-1]["cache_control"] == mark
        *before, last = [block for m in asked.body["messages"] for block in m["content"]]
        assert last["cache_control"] == mark
        assert not any("cache_control" in block for block in before)


def test_without_a_prompt_the_tools_are_cached(client, tmp_path):
    (tmp_path / "empty").write_text("")
    with FakeProvider(always(Say("No."))) as provider:
        agent = find(f"anthropic:m?base_url={provider.url}&prompt={tmp_path / 'empty'}")
        played(client, agent, None, DOG)
    body = provider.requests[0].body
    assert "system" not in body
    assert body["tools"][-1]["cache_control"] == {"type": "ephemeral"}


# A1, A2, A6: what the model writes is what the server reads.
TEXTS = [
    '{"letter": "d"}',
    '{"letter":\n  25.00}',
    '{"letter": 9007199254740993}',
    '{"letter": ' + "9" * 5_000 + "}",
    '{"letter": 1e400}',
    '{"letter": NaN}',
    '{}""',
    "",
    " ",
    "null",
    '"type_letter"',
    "I shall type d",
    '{"letter": "d", "letter": "o"}',
    '{"letter": "\\ud83d\\ude00\\ud800"}',
    '{"letter": "é — 漢字"}',
    "[" * 5_000,
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20])
def test_arguments_reach_the_log_as_the_model_wrote_them(client, text):
    script = in_turn(Say(calls=[("type_letter", text)]), Say("Done."))
    episode, provider = run(client, script)
    assert episode.steps[0].action.arguments_json == text
    assert kinds(episode) == [ToolCall, Final]
    # The conversation went on, and the API took it.
    assert provider.requests[1].results == [episode.steps[0].seen.observation]


def test_characters_that_the_stream_cuts_in_two_are_mended(client):
    halves = '{"letter":  "\ud83d\ude00"}'
    assert [piece[-1:] for piece in pieces(halves)][1] == "\ud83d"
    episode, _ = run(client, in_turn(Say(calls=[("type_letter", halves)]), Say("Done.")))
    assert episode.actions[0].arguments_json == '{"letter":  "\U0001f600"}'


def test_thoughts_go_back_as_they_came(client, registry):
    _, provider = run(client, gold(registry, thinking="Let me see."))
    for message in provider.requests[-1].body["messages"][1::2]:
        first = message["content"][0]
        assert (first["type"], first["thinking"]) == ("thinking", "Let me see.")
        assert first["signature"]  # which the provider checks


@pytest.mark.parametrize("text", ["", "null", " ", '{}""'])
def test_no_arguments_where_none_are_needed_are_mended(client, text):
    env_id = "railgym/TypewriterKeys-v1"
    with FakeProvider(in_turn(Say(calls=[("d", text)]), Say("Done."))) as provider:
        episode = played(client, agent_of(provider), env_id, None)
    assert episode.steps[0].action.arguments_json == text
    assert "repaired" in episode.steps[0].seen.info
    assert episode.faults[0] is None


# A7: a turn that was cut runs none of its calls.
@pytest.mark.parametrize(
    "cut",
    [
        Say("First", calls=[letter("d"), ("type_letter", '{"letter": "o')], stop="truncated"),
        Say(calls=[letter("d"), letter("o")], stop="truncated"),
        Say(calls=[letter("d"), ("type_letter", '{"letter":"a"')], stop="calls"),
        Say(calls=[("type_letter", '{"letter": "}]')], stop="calls"),
        Say("I was about to", stop="truncated"),
        Say(thinking="For ever and ever", stop="truncated"),
    ],
)
def test_a_cut_turn_runs_no_call(client, cut):
    after = Say(calls=[letter("d")])
    episode, provider = run(client, in_turn(cut, after, Say("Done.")))
    assert episode.faults == ["truncated_output", None, None]
    assert kinds(episode) == [NoAction, ToolCall, Final]
    assert [step.turn for step in episode.steps] == [1, 2, 3]
    assert seen(episode, 1) == {"result": "d"}
    assert provider.requests[1].told == [episode.steps[0].seen.observation]
    assert provider.requests[1].results == []


def test_arguments_broken_in_the_middle_of_a_turn_are_for_the_server(client):
    calls = [("type_letter", '{"letter": "d"'), letter("d")]
    episode, _ = run(client, in_turn(Say(calls=calls), Say("Done.")))
    assert episode.faults == ["format_error", None, None]
    assert seen(episode, 1) == {"result": "d"}


# A8: unknown and forbidden tools are the model's mistakes, and the API takes their names back.
@pytest.mark.parametrize("name", ["multi_tool_use.parallel", "", "a b", "x" * 300])
def test_a_made_up_tool_is_unknown(client, name):
    args = '{"tool_uses": [{"recipient_name": "functions.type_letter"}]}'
    episode, provider = run(client, in_turn(Say(calls=[(name, args)]), Say("Done.")))
    assert episode.faults[0] == "unknown_tool"
    assert episode.steps[0].action.name == name
    assert "type_letter" in seen(episode, 0)["error"]["message"]
    names = [b["name"] for b in provider.requests[1].body["messages"][1]["content"]]
    assert all(set(n) <= set("abcdefghijklmnopqrstuvwxyz_") and 0 < len(n) <= 64 for n in names)


def test_a_tool_that_the_task_does_not_allow_is_not_allowed(serve):
    keys = {"env_id": "railgym/TypewriterKeys-v1", "allowed_tools": ["d", "o", "g"]}
    gold = [*({"tool": key} for key in "dog"), {"final": ""}]
    task = make_task(**keys, gold=gold, instruction="Type dog.")
    server = serve(Registry({task.task_id: task}))
    with railgym.connect(server.address) as client:
        script = in_turn(Say(calls=[("x", "{}"), ("d", "{}")]), Say("Done."))
        episode, provider = run(client, script, task_id=task.task_id)
    assert episode.faults == ["not_allowed", None, None]
    assert seen(episode, 1) == {"result": "d"}
    assert "there are d, g, o" in seen(episode, 0)["error"]["message"]
    assert [tool["name"] for tool in provider.requests[0].body["tools"]] == ["d", "g", "o"]


# A9: calls of one turn.
def test_calls_of_a_turn_run_in_order_and_their_results_go_back_together(client):
    calls = [letter("d"), ("type_letter", '{"letter": "too long"}'), letter("o")]
    episode, provider = run(client, in_turn(Say("So:", calls=calls), Say("Done.")))
    assert [step.turn for step in episode.steps] == [1, 1, 1, 2]
    assert len(episode.claims) == 2
    assert episode.faults == [None, "tool_error", None, None]
    assert seen(episode, 2) == {"result": "do"}
    _, answer, results = provider.requests[1].body["messages"]
    uses = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
    assert [block["tool_use_id"] for block in results["content"]] == uses
    given = [block["content"] for block in results["content"]]
    assert given == [step.seen.observation for step in episode.steps[:3]]


@pytest.mark.parametrize("ids", [("", ""), ("same", "same"), ("a b", "c/d")])
def test_ids_that_are_missing_or_repeated_are_made_good(client, ids):
    first = Say(calls=[letter("d"), letter("o")], ids=ids)
    again = Say(calls=[letter("g")], ids=ids[:1])
    episode, _ = run(client, in_turn(first, again, Say("Done.")))
    assert episode.faults == [None] * 4
    assert episode.last.reward == 1


# A11: an empty answer is told once.
EMPTY = [Say(), Say(" \n "), Say(thinking="The answer is dog."), Say("Let me type", stop="calls")]


@pytest.mark.parametrize("empty", EMPTY)
def test_an_empty_answer_is_told_once(client, empty):
    episode, provider = run(client, always(empty))
    assert kinds(episode) == [NoAction, Final]
    assert episode.faults == ["empty_response", None]
    assert len(provider.requests) == 2
    assert "empty_response" in provider.requests[1].told[0]


def test_only_empty_answers_in_a_row_end_the_episode(client):
    full = Say(calls=[letter("d")])
    episode, _ = run(client, in_turn(Say(), full, Say(), Say("Done.")))
    assert episode.faults == ["empty_response", None, "empty_response", None]
    assert episode.steps[-1].action.answer == "Done."


# A12: a refusal is an end of its own.
@pytest.mark.parametrize("calls", [(), (letter("d"),)])
def test_a_refusal_ends_the_episode(client, calls):
    said = Say("I would rather not.", calls=calls, stop="refusal")
    episode, provider = run(client, always(said))
    assert episode.faults == ["refusal"]
    assert kinds(episode) == [NoAction]
    assert episode.last.terminated
    assert len(provider.requests) == 1


# A14: rate limits.
def test_a_rate_limit_is_waited_out(client, registry):
    playing = gold(registry)

    def script(asked, attempt):
        busy = asked.turns == 1 and attempt <= 3
        return Fault(429, {"Retry-After": "7"}) if busy else playing(asked, attempt)

    clock = Clock()
    episode, provider = run(client, script, clock=clock)
    assert episode.last.reward == 1
    assert len(episode.claims) == len(episode.steps) == 4
    assert len(provider.requests) == 7
    retries = episode.claims[1]["retries"]
    assert [(r["status"], r["error"], r["usage"]) for r in retries] == [
        (429, "rate_limit_error", None)
    ] * 3
    assert all(retry["waited_ms"] >= 7_000 for retry in retries)
    assert episode.claims[1]["queue_ms"] == pytest.approx(sum(clock.waits) * 1_000)
    assert episode.claims[1]["latency_ms"] == 0
    assert [claim["queue_ms"] for claim in episode.claims if claim["turn"] != 2] == [0, 0, 0]


def test_past_the_budget_the_model_has_failed_and_says_with_what(client):
    script = always(Fault(429, {"retry-after-ms": "1500"}))
    with FakeProvider(script) as provider, pytest.raises(ModelFailed, match="429") as e:
        played(client, agent_of(provider, attempts=4), None, DOG)
    assert not isinstance(e.value, RunStopped)
    claim = e.value.claim
    assert claim["error"]["status"] == 429
    assert (claim["answered_by"], claim["usage"], claim["stop"]) == (None, None, None)
    assert [retry["waited_ms"] for retry in claim["retries"]] == [2_000, 2_500, 3_500]
    assert len(provider.requests) == 4


# A15: streams that break.
WHOLE = Say("Here:", calls=[letter("d"), letter("o")])


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (Overloaded(WHOLE), "overloaded_error"),
        (Cut(WHOLE), "cut_off"),
        (Cut(WHOLE, ends_well=True), "cut_off"),
        (Cut(WHOLE, after_bytes=700), "cut_off"),
    ],
)
def test_a_broken_stream_runs_no_half_call_and_is_paid_for(client, broken, error):
    usage = {"input": 100, "cache_write_5m": 50, "cache_write_1h": 5, "output": 20}
    broken = broken._replace(say=WHOLE._replace(usage=usage))
    after = in_turn(broken, Say(calls=[letter("d")]), Say("Done."))
    episode, _ = run(client, after)
    assert kinds(episode) == [ToolCall, Final]
    assert [step.turn for step in episode.steps] == [1, 2]
    assert seen(episode, 0) == {"result": "d"}
    (retry,) = episode.claims[0]["retries"]
    assert (retry["status"], retry["error"]) == (200, error)
    # The stream's first event says what went in, and 1 for what has come out.
    expected = {"input": 100, "cache_read": 0, "cache_write_5m": 50, "cache_write_1h": 5}
    assert retry["usage"] == {**expected, "output": 1, "reasoning": 0}
    assert episode.tokens["input"] == 300


@pytest.mark.parametrize(
    "fault", [Fault(500), Fault(529), Fault(503), Fault(408), Html(), Html(502), Cut(WHOLE, 0)]
)
def test_what_may_pass_is_tried_again(client, registry, fault):
    playing, clock = gold(registry), Clock()
    script = lambda asked, attempt: fault if attempt < 3 else playing(asked, attempt)  # noqa: E731
    episode, _ = run(client, script, clock=clock)
    assert episode.last.reward == 1
    assert clock.waits == [0.5, 1.0] * 4  # half of a bound that doubles


def test_a_provider_that_is_not_there_is_tried_again(client):
    with FakeProvider(always(Say())) as provider:
        agent = agent_of(provider, attempts=2)
    told = f"APIConnectionError.*Connection refused at {provider.url}/v1/messages"
    with pytest.raises(ModelFailed, match=told) as e:
        played(client, agent, None, DOG)
    assert [retry["status"] for retry in e.value.claim["retries"]] == [None]


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (200, "expected an event stream from {url}/v1/messages, got text/html: <html>"),
        (404, "status 404 at {url}/v1/messages: <html>"),
    ],
)
def test_a_page_in_place_of_an_answer_is_told_with_its_address(client, status, told):
    with FakeProvider(always(Html(status))) as provider, pytest.raises(ModelFailed) as e:
        played(client, agent_of(provider, attempts=1), None, DOG)
    assert told.format(url=provider.url) in str(e.value)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_request_that_will_never_do_is_not_repeated(client, status):
    with FakeProvider(always(Fault(status))) as provider, pytest.raises(ModelFailed) as e:
        played(client, agent_of(provider), None, DOG)
    assert len(provider.requests) == 1
    assert not isinstance(e.value, RunStopped)
    assert e.value.claim["error"]["status"] == status


@pytest.mark.parametrize(
    "fault",
    [
        Fault(401),
        Fault(402),
        Fault(403),
        Fault(404),
        Fault(400, message="Your credit balance is too low to access the Anthropic API."),
    ],
)
def test_what_is_wrong_for_every_trial_stops_the_run(client, fault):
    with FakeProvider(always(fault)) as provider, pytest.raises(RunStopped):
        played(client, agent_of(provider), None, DOG)
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("code", "kind"), [("enforced_spend_limit_reached", "stop"), (None, "retry")]
)
def test_a_limit_of_money_is_told_from_one_of_speed(code, kind):
    words = {"type": "rate_limit_error", "message": "no", "details": {"error_code": code}}
    reply = httpx2.Response(429, request=httpx2.Request("POST", "http://x"))
    error = anthropic.RateLimitError("no", response=reply, body={"error": words})
    assert find("anthropic:m").provider.failure(error).kind == kind


def test_without_a_key_the_run_stops_with_a_clear_word(client, monkeypatch, tmp_path):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    with pytest.raises(RunStopped, match="ANTHROPIC_API_KEY"):
        played(client, find("anthropic:some-model"), None, DOG)


def test_the_key_of_the_environment_is_used_and_never_told(client, registry, monkeypatch):
    with FakeProvider(gold(registry)) as provider:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        agent = find("anthropic:some-model")
        episode = played(client, agent, None, DOG)
    assert "sk-secret" in " ".join(provider.requests[0].headers.values())
    told = json.dumps([episode.claims, agent.describe()])
    assert "sk-secret" not in told
    assert provider.url not in told


# A28: buckets that do not overlap, and every token once.
def test_usage_is_counted_once(client, registry):
    episode, provider = run(client, gold(registry))
    turns = range(len(provider.requests))
    assert [claim["usage"] for claim in episode.claims] == [
        {
            "input": 40 + n,
            "cache_read": 500 * n,
            "cache_write_5m": 500,
            "cache_write_1h": 0,
            "output": 30 + n,
            "reasoning": n,
        }
        for n in turns
    ]


def test_threads_share_an_agent_but_no_conversation(client, registry):
    found = []

    def play_one(agent, task_id):
        found.append(played(client, agent, None, task_id).last.reward)

    ids = [t for t in registry.tasks if t.startswith("typewriter/reference/")][:6]
    with FakeProvider(gold(registry)) as provider:
        agent = find(f"anthropic:m?base_url={provider.url}")
        threads = [threading.Thread(target=play_one, args=(agent, task_id)) for task_id in ids]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [1.0] * len(ids)


def test_the_log_of_a_model_replays_to_the_same_state(client, registry):
    calls = [letter("d"), ("type_letter", '{"letter": "??"}'), letter("o"), letter("g")]
    with FakeProvider(in_turn(Say(calls=calls), Say("Done."))) as provider:
        session = client.session(task_id=DOG)
        with session:
            observation, info = session.reset(seed=0)
            space = session.env.action_space
            briefing = railgym.agents.Briefing("Type dog.", space, observation, info, 0)
            play(agent_of(provider)(briefing), lambda m: session.step(m.action, turn=m.turn))
    episode_id = f"{session.id}.1"
    (score,) = client.score([episode_id])
    assert (score.outcome, score.success) == ("VERIFIED", True)
    assert len(logged(client, episode_id).steps) == 5
