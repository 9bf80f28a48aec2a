"""The core: steps in order, each exactly once, on the task's rails, judged by the task alone."""

import json

import numpy as np
import pytest
from playing import make_task

from env_server.env import Final, NoAction, Plain, Text, ToolCall, ToolEnv, tool
from env_server.episode import Episode, EpisodeSpec, same_action
from env_server.errors import BadAction, BadOptions, EpisodeOver, StepOutOfOrder
from env_server.registry import Registry

REGISTRY = Registry({})
TYPE_D, TYPE_O, TYPE_G = (
    ToolCall("type_letter", json.dumps({"letter": letter})) for letter in "dog"
)
DONE = Final("")


class Shelf(ToolEnv):
    """Things on a shelf; its own reward is the number of things."""

    MAX_STEPS = 5

    def _begin(self):
        self.things = []

    def state(self):
        return {"things": self.things}

    def _outcome(self, answered):
        return float(len(self.things)), answered or len(self.things) > 2

    @tool
    def put(self, name: str, count: int = 1) -> int:
        """Puts things on the shelf."""
        self.things += [name] * count
        return len(self.things)

    @tool
    def weigh(self, kilos: float) -> float:
        """Weighs a thing."""
        return kilos

    @tool
    def look(self) -> list[str]:
        """Looks at the shelf."""
        return list(self.things)

    @tool
    def drop(self) -> None:
        """Has a bug."""
        raise ZeroDivisionError


def begin(env_id="railgym/Typewriter-v1", task=None, rule="strict", **options):
    options = {**(task.options if task else {}), **options}
    env = REGISTRY.env(env_id).make()
    return Episode(EpisodeSpec(env_id, task, options, seed=0, rule=rule), env)


def shelf(rule="strict", task=None):
    return Episode(EpisodeSpec("test/Shelf-v1", task, rule=rule), Shelf())


def take(episode, *actions):
    return [episode.step(episode.latest + 1, action) for action in actions]


def error(reply):
    found = json.loads(reply.transition.observation)["error"]
    assert found["code"] == reply.transition.info["fault"]
    return found["code"], found["message"]


# Order


@pytest.mark.parametrize("number", [-1, 0, 2, 2**32])
def test_the_first_step_is_number_1(number):
    episode = begin(target="dog")
    with pytest.raises(StepOutOfOrder) as caught:
        episode.step(number, TYPE_D)
    assert caught.value.metadata == {"expected": "1", "got": str(number)}
    assert (episode.latest, episode.actions, episode.env.paper) == (0, [], "")


def test_a_step_is_the_latest_or_the_next():
    episode = begin(target="dog")
    take(episode, TYPE_D, TYPE_O)
    for number in (0, 1, 4):
        with pytest.raises(StepOutOfOrder) as caught:
            episode.step(number, TYPE_G)
        assert caught.value.metadata == {"expected": "3", "got": str(number)}
    assert episode.env.paper == "do"


def test_a_repeat_of_the_latest_step_returns_its_reply_and_changes_nothing():
    episode = begin(target="dog")
    first, second = take(episode, TYPE_D, TYPE_O)
    assert episode.step(2, TYPE_O) is second
    assert (episode.latest, episode.env.paper, len(episode.calls)) == (2, "do", 2)
    assert first.state_hash != second.state_hash == episode.state_hash


def test_a_repeat_with_another_action_is_out_of_order():
    episode = begin(target="dog")
    take(episode, TYPE_D)
    for other in (TYPE_O, ToolCall("type_letter", '{"letter":"d"}'), Final(""), Text("d")):
        with pytest.raises(StepOutOfOrder, match="with another action") as caught:
            episode.step(1, other)
        assert caught.value.metadata == {"expected": "2", "got": "1"}
    assert episode.env.paper == "d"


@pytest.mark.parametrize("actions", [[Final("x"), Text("x")], [Text("x"), Final("x")]])
def test_equal_looking_actions_of_two_kinds_are_two_actions(actions):
    episode = shelf()
    take(episode, actions[0])
    with pytest.raises(StepOutOfOrder):
        episode.step(1, actions[1])


KINDS = [
    ToolCall("refusal", ""),
    NoAction("refusal", ""),
    Text("refusal"),
    Final("refusal"),
    Plain("refusal"),
    Plain(1),
    Plain(True),
    Plain(1.0),
    Plain(np.int64(1)),
    Plain(np.int32(1)),
    Plain(np.array(1)),
    Plain(np.array([1])),
    Plain(np.array([1.0])),
    Plain((1,)),
    Plain([1]),
    Plain({"a": np.array([1, 2])}),
    Plain({"a": np.array([1, 3])}),
]


def test_actions_are_the_same_by_kind_type_and_value():
    for i, one in enumerate(KINDS):
        for j, other in enumerate(KINDS):
            assert same_action(one, other) == (i == j)
    assert same_action(ToolCall("a"), ToolCall("a", "{}"))


def test_after_the_end_only_the_last_step_can_be_repeated():
    episode = begin(target="d")
    [last] = take(episode, TYPE_D)
    assert (last.end, last.transition.terminated) == ("goal", True)
    assert episode.step(1, TYPE_D) is last
    for number in (0, 2, 3):
        with pytest.raises(EpisodeOver, match="ended at step 1: goal") as caught:
            episode.step(number, TYPE_O)
        assert caught.value.metadata == {"step": "1", "reason": "goal"}
    assert episode.env.paper == "d"


def test_an_environment_can_begin_again_at_any_time():
    env = REGISTRY.env("railgym/Typewriter-v1").make()
    spec = EpisodeSpec("railgym/Typewriter-v1", None, {"target": "dog"})
    fresh = Episode(spec, env).start
    for actions in ([], [TYPE_D], [TYPE_D, TYPE_O, TYPE_G]):
        episode = Episode(spec, env)
        take(episode, *actions)
        again = Episode(spec, env)
        assert again.start == fresh
        assert (again.latest, again.end, again.calls) == (0, None, [])


# Rails


def test_the_limit_of_steps_cuts_the_episode_off_with_reward_0():
    episode = begin(task=make_task(max_steps=4))
    *_, last = take(episode, TYPE_D, TYPE_O, TYPE_G, NoAction("empty_response"))
    assert last.transition[1:4] == (0.0, False, True)
    assert last.end == episode.end == "max_steps"
    assert episode.verdict is None
    with pytest.raises(EpisodeOver, match="max_steps"):
        episode.step(5, DONE)


def test_an_answer_at_the_last_step_still_counts():
    episode = begin(task=make_task(max_steps=4))
    *_, last = take(episode, TYPE_D, TYPE_O, TYPE_G, DONE)
    assert last.transition[1:4] == (1.0, True, False)
    assert last.end == "final"


def test_without_a_task_the_environment_sets_the_limit():
    episode = shelf()
    replies = take(episode, *[ToolCall("look")] * 5)
    assert [reply.end for reply in replies] == [None] * 4 + ["max_steps"]


def test_a_tool_that_is_not_allowed_is_told_from_one_that_is_not_there():
    task = make_task(env_id="test/Shelf-v1", options={}, allowed_tools=["look", "put"])
    for name, code, why in [
        ("weigh", "not_allowed", "is not allowed here"),
        ("multi_tool_use.parallel", "unknown_tool", "does not exist"),
        ("type_letter", "unknown_tool", "does not exist"),
        ("Look", "unknown_tool", "does not exist"),
        ("", "unknown_tool", "does not exist"),
        ("reset", "unknown_tool", "does not exist"),
        ("__import__('os').system", "unknown_tool", "does not exist"),
    ]:
        episode = shelf(task=task)
        [reply] = take(episode, ToolCall(name, '{"kilos": 1}'))
        found, message = error(reply)
        assert found == code
        assert repr(name) in message
        assert why in message
        assert "there are put, look" in message
        assert reply.state_hash == episode.start.state_hash
    assert [spec.name for spec in episode.tools] == ["put", "look"]


# Reward


def test_a_tasks_reward_is_that_of_its_validators():
    rules = [{"name": "must_call", "any_of": ["look"]}, {"name": "answer_number"}]
    task = make_task(env_id="test/Shelf-v1", options={}, expected=None, validators=rules[:1])
    put = ToolCall("put", '{"name": "cup"}')
    assert [r.transition.reward for r in take(shelf(task=task), put, DONE)] == [0.0, 0.0]
    assert [r.transition.reward for r in take(shelf(), put, DONE)] == [1.0, 1.0]
    episode = shelf(task=task)
    assert [r.transition.reward for r in take(episode, ToolCall("look"), DONE)] == [0.0, 1.0]
    assert episode.verdict == {"must_call": True}


def test_an_end_of_the_environment_is_judged_too():
    task = make_task(options={"target": "dog", "finish": "goal"})
    episode = begin(task=task)
    *_, last = take(episode, TYPE_D, TYPE_O, TYPE_G)
    assert (last.end, last.transition.reward, episode.verdict) == (
        "goal",
        1.0,
        {"state_equals": True},
    )
    episode = begin(task=task)
    [last] = take(episode, TYPE_O)
    assert (last.end, last.transition.reward) == ("goal", 0.0)
    assert episode.verdict == {"state_equals": False}


def test_every_validator_has_its_verdict():
    rules = [{"name": "state_equals", "field": "paper"}, {"name": "max_calls", "n": 2}]
    episode = begin(task=make_task(validators=rules))
    assert take(episode, TYPE_D, TYPE_O, TYPE_G, DONE)[-1].transition.reward == 0.0
    assert episode.verdict == {"state_equals": True, "max_calls": False}


def test_a_refusal_ends_with_reward_0_whatever_the_state():
    episode = begin(task=make_task())
    *_, last = take(
        episode, TYPE_D, TYPE_O, TYPE_G, NoAction("refusal", "I cannot help with that.")
    )
    assert error(last)[0] == "refusal"
    assert last.transition[1:4] == (0.0, True, False)
    assert (last.end, episode.verdict) == ("final", None)


# Faults


@pytest.mark.parametrize("code", ["truncated_output", "empty_response"])
def test_a_turn_without_action_is_a_step_in_which_nothing_runs(code):
    episode = begin(target="dog")
    half = 'type_letter({"letter": "d"}) type_letter({"let'
    [reply] = take(episode, NoAction(code, half))
    assert error(reply) == (code, f"no action: {code}")
    assert reply.transition[1:4] == (0.0, False, False)
    assert (episode.latest, episode.calls, episode.env.paper) == (1, [], "")
    assert reply.state_hash == episode.start.state_hash


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (ToolCall("put", '{"name":"cup"'), "format_error"),
        (ToolCall("put", "a cup, please"), "format_error"),
        (ToolCall("put", '{"name":"cup"}{}'), "format_error"),
        (ToolCall("put", '["cup"]'), "bad_arguments"),
        (ToolCall("put", ""), "bad_arguments"),
        (ToolCall("put", ' {}""'), "bad_arguments"),
        (ToolCall("put", "null"), "bad_arguments"),
        (ToolCall("put", "{}"), "bad_arguments"),
        (ToolCall("put", '{"name":"cup","count":2,"count":2}'), "bad_arguments"),
        (ToolCall("put", '{"name":"cup","color":"red"}'), "bad_arguments"),
        (ToolCall("put", '{"name":7}'), "bad_arguments"),
        (ToolCall("put", '{"name":"cup","count":2.5}'), "bad_arguments"),
        (ToolCall("put", '{"name":"cup","count":null}'), "bad_arguments"),
        (ToolCall("weigh", '{"kilos":NaN}'), "bad_arguments"),
        (ToolCall("weigh", '{"kilos":1e400}'), "bad_arguments"),
        (ToolCall("weigh", f'{{"kilos":{"9" * 5000}}}'), "bad_arguments"),
        (ToolCall("weigh", f'{{"kilos":{"9" * 400}}}'), "bad_arguments"),
        (ToolCall("weigh", '{"kilos":"NaN"}'), "bad_arguments"),
        (Text("I put a cup there."), "format_error"),
        (Text(" "), "empty_response"),
        (Text('{"action": "jump"}'), "unknown_tool"),
    ],
)
@pytest.mark.parametrize("rule", ["strict", "lenient"])
def test_a_mistake_costs_a_step_and_changes_nothing(action, code, rule):
    episode = shelf(rule)
    [reply] = take(episode, action)
    assert error(reply)[0] == code
    assert reply.transition[1:4] == (0.0, False, False)
    assert reply.state_hash == episode.start.state_hash
    assert episode.latest == 1
    assert all(call.arguments is None and call.fault == code for call in episode.calls)


def test_a_message_names_the_field_what_was_expected_and_what_came():
    def message(arguments):
        return error(take(shelf(), ToolCall("put", arguments))[0])[1]

    assert message('{"count": 2}') == "put needs the argument 'name'"
    assert message("  ") == "put needs name; got '  '"
    assert message('{"name": "cup", "color": 1}') == (
        "put has no argument 'color'; it takes name, count"
    )
    assert message('{"name": "cup", "\\ud800": 1}') == (
        "put has no argument '\\ud800'; it takes name, count"
    )
    assert message('{"name": "cup", "count": "two"}') == (
        'argument \'count\' of put: expected {"type":"integer"}; got "two"'
    )


@pytest.mark.parametrize("action", [Plain(1), Plain("x"), NoAction("format_error"), NoAction("")])
def test_a_tool_environment_takes_no_other_actions(action):
    episode = shelf()
    with pytest.raises(BadAction) as caught:
        episode.step(1, action)
    assert set(caught.value.metadata) == {"expected", "got"}
    assert (episode.latest, episode.actions) == (0, [])


@pytest.mark.parametrize(
    "action",
    [Plain(26), Plain(-1), Plain(1.5), Plain("a"), Plain(None), Plain([1]), Final(), ToolCall("a")],
)
def test_a_plain_environment_takes_values_of_its_space(action):
    episode = begin("railgym/TypewriterPolicy-v1", target="dog")
    with pytest.raises(BadAction):
        episode.step(1, action)
    assert episode.latest == 0
    assert episode.state_hash == episode.start.state_hash


def test_a_bug_of_a_tool_is_not_the_agents_fault():
    episode = shelf()
    with pytest.raises(ZeroDivisionError):
        episode.step(1, ToolCall("drop"))
    assert episode.latest == 0


# Reading


@pytest.mark.parametrize("text", ['{}""', '""', "null", "", " \n", " " * 1000])
def test_blank_arguments_are_none_where_none_are_needed(text):
    [reply] = take(shelf(), ToolCall("look", text))
    assert reply.transition.info == {"repaired": "blank_arguments"}
    assert reply.transition.observation == '{"result":[]}'


@pytest.mark.parametrize("text", ["{}", " { } "])
def test_no_arguments_are_no_repair(text):
    assert take(shelf(), ToolCall("look", text))[0].transition.info == {}


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ('{"action": "look"}', "blank_arguments"),
        ('{"action": "look", "action_input": {}}', None),
        ('So: {"action": "look", "action_input": {}}', "unwrapped"),
        ('So: {"action": "look"}', "unwrapped,blank_arguments"),
        ('So: {"action": "final", "action_input": "x"}', "unwrapped"),
    ],
)
def test_what_was_mended_is_marked(text, repaired):
    [reply] = take(shelf(), Text(text))
    assert reply.transition.info.get("repaired") == repaired
    assert "fault" not in reply.transition.info


def test_a_fault_keeps_the_mark_of_what_was_mended_before():
    [reply] = take(shelf(), Text('So: {"action": "jump"}'))
    assert reply.transition.info == {"fault": "unknown_tool", "repaired": "unwrapped"}


@pytest.mark.parametrize("kilos", ["25", "25.0", "25.00", "2.5e1"])
def test_one_number_is_one_call(kilos):
    episode = shelf()
    [reply] = take(episode, ToolCall("weigh", f'{{"kilos":{kilos}}}'))
    assert reply.transition.observation == '{"result":25.0}'
    assert episode.calls[0].arguments == {"kilos": 25}
    put = ToolCall("put", f'{{"name":"cup","count":{kilos}}}')
    [reply], [same] = (
        take(shelf(), put),
        take(shelf(), ToolCall("put", '{"name":"cup","count":25}')),
    )
    assert reply == same
    assert reply.transition.observation == '{"result":25}'


def test_large_integers_arrive_as_they_are():
    episode = shelf()
    take(episode, ToolCall("look", '{"id":9007199254740993}'))
    assert "9007199254740993" in episode.actions[0].arguments_json
    take(episode, ToolCall("put", '{"name":"9007199254740993","count":1}'))
    assert episode.env.things == ["9007199254740993"]


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"name":"cup","count":"2"}', {"name": "cup", "count": 2}),
        ('{"name":"cup","count":true}', {"name": "cup", "count": 1}),
    ],
)
def test_a_lenient_run_reads_numbers_from_strings_and_says_so(arguments, read):
    episode = shelf("lenient")
    [reply] = take(episode, ToolCall("put", arguments))
    assert reply.transition.info == {"repaired": "lenient_arguments"}
    assert episode.calls[0].arguments == read
    [reply] = take(shelf("strict"), ToolCall("put", arguments))
    assert error(reply)[0] == "bad_arguments"


@pytest.mark.parametrize("kilos", ["NaN", "inf", "-Infinity", "1e400", "9" * 5000, "ten", ""])
def test_a_lenient_run_reads_no_infinities(kilos):
    [reply] = take(shelf("lenient"), ToolCall("weigh", json.dumps({"kilos": kilos})))
    assert error(reply)[0] == "bad_arguments"


def test_calls_are_recorded_in_order_with_what_became_of_them():
    episode = begin(target="dog")
    take(
        episode,
        TYPE_D,
        ToolCall("jump"),
        ToolCall("type_letter", '{"letter":""}'),
        Text(" "),
        TYPE_O,
    )
    assert [(c.step, c.name, c.arguments, c.fault) for c in episode.calls] == [
        (1, "type_letter", {"letter": "d"}, None),
        (2, "jump", None, "unknown_tool"),
        (3, "type_letter", {"letter": ""}, "tool_error"),
        (5, "type_letter", {"letter": "o"}, None),
    ]


# Options


@pytest.mark.parametrize(
    ("options", "name", "expected"),
    [
        ({"tarhet": "dog"}, "tarhet", "one of target, finish"),
        ({"target": 7}, "target", "string"),
        ({"target": ""}, "target", "at least 1"),
        ({"target": "dog", "finish": "never"}, "finish", "'goal' or 'final'"),
        ({"": 1}, "", "one of"),
        ({"x" * 10_000: 1}, "x" * 80, "one of"),
    ],
)
def test_wrong_options_are_refused_by_name(options, name, expected):
    with pytest.raises(BadOptions) as caught:
        begin(**options)
    assert name in str(caught.value)
    assert expected in caught.value.metadata["expected"]
    assert caught.value.metadata["option"].startswith(name)
    assert len(str(caught.value)) < 400


def test_an_episode_that_cannot_begin_leaves_the_running_one_alone():
    env = REGISTRY.env("railgym/Typewriter-v1").make()
    running = Episode(EpisodeSpec("railgym/Typewriter-v1", None, {"target": "dog"}), env)
    take(running, TYPE_D)
    with pytest.raises(BadOptions):
        Episode(EpisodeSpec("railgym/Typewriter-v1", None, {"target": 7}, seed=3), env)
    assert take(running, TYPE_O, TYPE_G)[-1].end == "goal"


def test_a_task_fixes_the_options():
    task = make_task()
    env = REGISTRY.env(task.env_id).make()
    for options in ({}, {**task.options, "target": "cat"}, {**task.options, "more": 1}):
        with pytest.raises(BadOptions, match=task.task_id):
            Episode(EpisodeSpec(task.env_id, task, options), env)
