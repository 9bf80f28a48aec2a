"""Typing: what stands on the paper stays there, and an agent must know by itself when to stop."""

import json
import string

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from env_server.env import Final, ToolCall
from env_server.envs.typewriter import MAX_TARGET, Typewriter, TypewriterKeys, TypewriterPolicy
from env_server.episode import Episode, EpisodeSpec
from env_server.errors import BadOptions
from env_server.gold import play_gold
from env_server.registry import Registry
from env_server.tasks import bundled_tasks

WORDS = [
    "a",
    "aa",
    "aaa",
    "aaaa",
    "dog",
    "cat",
    "hand",
    "head",
    "house",
    "horse",
    "school",
    "church",
    "teacher",
    "student",
    "computer",
    "keyboard",
    "university",
    "dictionary",
    "information",
    "communication",
]

REFERENCE = [
    f"{folder}/reference/{word}" for folder in ("typewriter", "typewriter_keys") for word in WORDS
]


def letter(text):
    return ToolCall("type_letter", json.dumps({"letter": text}))


def typewriter(target, finish="goal"):
    env = Typewriter()
    env.reset(seed=0, options={"target": target, "finish": finish})
    return env


def play(task_id, actions):
    task = bundled_tasks()[task_id]
    env = Registry().env(task.env_id).make()
    episode = Episode(EpisodeSpec(task.env_id, task, task.options), env)
    return [episode.step(number, action) for number, action in enumerate(actions, start=1)]


@pytest.mark.parametrize("env_class", [Typewriter, TypewriterKeys, TypewriterPolicy])
def test_gymnasium_accepts_it(env_class, recwarn):
    check_env(env_class(), skip_render_check=True)


def test_the_paper_comes_back_and_the_goal_ends_with_reward_1():
    env = typewriter("ab")
    first, second = env.step(letter("a")), env.step(letter("b"))
    assert first == ('{"result":"a"}', 0.0, False, False, {})
    assert second == ('{"result":"ab"}', 1.0, True, False, {})


def test_a_wrong_letter_ends_with_reward_0():
    seen = typewriter("ab").step(letter("b"))
    assert (seen.reward, seen.terminated) == (0.0, True)


def test_with_finish_final_only_the_answer_ends():
    env = typewriter("ab", "final")
    seen = [env.step(letter(c)) for c in "ab"]
    assert not any(s.terminated or s.reward for s in seen)
    assert env.step(Final("")) == ('{"result":null}', 1.0, True, False, {})
    over = typewriter("ab", "final")
    for c in "abb":
        over.step(letter(c))
    assert over.step(Final("ab")).reward == 0.0


@pytest.mark.parametrize("text", ["", "ab", "🇫🇷"])
def test_a_letter_is_one_character(text):
    env = typewriter("ab")
    before = env.state_hash()
    assert env.step(letter(text)).info == {"fault": "tool_error"}
    assert env.state_hash() == before


def test_a_full_paper_takes_no_more():
    env = typewriter("b" * MAX_TARGET, "final")
    for _ in range(MAX_TARGET):
        env.step(letter("a"))
    assert env.step(letter("a")).info == {"fault": "tool_error"}


@pytest.mark.parametrize("target", ["", "a" * (MAX_TARGET + 1), 7, None])
def test_targets_have_1_to_1000_characters(target):
    if target is None:
        assert 3 <= len(typewriter(target).target) <= 8
        return
    with pytest.raises(BadOptions, match="'target'"):
        typewriter(target)


def test_the_seed_draws_the_target():
    def drawn(seed):
        env = TypewriterKeys()
        env.reset(seed=seed)
        return env.target

    assert drawn(4) == drawn(4)
    assert len({drawn(seed) for seed in range(30)}) > 25


@given(st.characters(exclude_categories=()))
@settings(deadline=None, max_examples=100)
def test_every_code_point_can_be_typed(character):
    env = typewriter(character)
    assert env.step(letter(character)).reward == 1.0
    assert env.state() == {"paper": character}
    assert len(env.state_hash()) == 32


def test_keys_are_a_to_z_and_take_no_argument():
    assert [tool.name for tool in TypewriterKeys().action_space.tools] == [*string.ascii_lowercase]
    env = TypewriterKeys()
    env.reset(options={"target": "xy"})
    assert env.step(ToolCall("x", '{"letter":"x"}')).info == {"fault": "bad_arguments"}
    assert env.step(ToolCall("x", "")).info == {"repaired": "blank_arguments"}
    assert env.step(ToolCall("y")).reward == 1.0


def test_policy_sees_target_and_paper():
    env = TypewriterPolicy()
    seen, _ = env.reset(options={"target": "cab"})
    assert seen.tolist() == [[3, 1, 2, *[0] * 13], [0] * 16]
    seen, reward, terminated, _, _ = env.step(2)
    assert np.array_equal(seen[1][:2], [3, 0])
    assert (reward, terminated) == (0.0, False)


def test_the_reference_words_are_complete():
    tasks = [t for t in bundled_tasks().values() if t.env_id.startswith("railgym/Typewriter")]
    assert [t.task_id for t in tasks if "reference" in t.tags] == REFERENCE


@pytest.mark.parametrize("task_id", REFERENCE)
def test_a_reference_word_counts_when_it_is_typed_and_nothing_after_it(task_id):
    task = bundled_tasks()[task_id]
    episode, replies = play_gold(task, Registry())
    assert [reply.transition.reward for reply in replies][-2:] == [0.0, 1.0]
    assert episode.env.paper == task_id.rpartition("/")[2]
    *letters, final = episode.actions
    assert play(task_id, [*letters, letters[-1], final])[-1].transition.reward == 0.0
    assert play(task_id, [*letters[:-1], final])[-1].transition.reward == 0.0


@pytest.mark.parametrize(
    "options",
    [{"target": "A"}, {"target": "a" * 17}, {"target": ""}, {"target": "a\n"}, {"finish": "final"}],
)
def test_a_policy_types_1_to_16_small_letters_and_gives_no_answer(options):
    with pytest.raises(BadOptions, match=f"option '{next(iter(options))}'"):
        TypewriterPolicy().reset(options=options)
    assert TypewriterPolicy().reset(options={"target": "z" * 16})[0][0].tolist() == [26] * 16
