"""Any Gymnasium environment can be an episode: its state is what can be seen of it."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from env_server.envs.hosted import Hosted, generator_state, set_generator_state
from env_server.envs.typewriter import Typewriter, TypewriterPolicy


class Shows(gymnasium.Env):
    """Shows what it is told to."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Discrete(2)
    shown = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.options = options
        return self.shown, {}

    def step(self, action):
        return self.shown, np.float32(1), np.bool_(False), np.bool_(True), {}


def state_hash(shown):
    env = Shows()
    env.shown = shown
    hosted = Hosted(env)
    hosted.reset(seed=1)
    return hosted.state_hash()


DIFFERENT = [
    None,
    0,
    False,
    0.0,
    "0",
    "",
    "0;0",
    (0,),
    (0, 0),
    ((0,), 0),
    (0, (0,)),
    (21, 1, 0),
    (2, 11, 0),
    (2, 1, 10),
    ("1", 0),
    ("10",),
    {},
    {"a": 1},
    {"a": 1, "b": 2},
    {"a": "1;b=2"},
    {"a": (1, "b", 2)},
    {"b": 1, "a": 2},
    np.int64(0),
    np.int32(0),
    np.zeros(1),
    np.zeros((1, 1)),
    np.zeros(2),
    np.zeros(1, np.float32),
    np.array(["a", "b"]),
    np.array(["a", None], object),
    np.array([["a", None]], object),
    spaces.GraphInstance(np.zeros((2, 1)), None, None),
    spaces.GraphInstance(np.zeros((2, 1)), np.zeros((1, 1)), np.zeros((1, 2), np.int64)),
]


def test_what_looks_different_has_another_state_hash():
    hashes = [state_hash(shown) for shown in DIFFERENT]
    assert {len(each) for each in hashes} == {32}
    assert len(set(hashes)) == len(DIFFERENT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.arange(6).reshape(2, 3)[:, ::2], np.array([[0, 2], [3, 5]])),
        (np.array(["ab", None], object), np.array(["".join("ab"), None], object)),
    ],
)
def test_what_looks_the_same_has_the_same_state_hash(one, other):
    assert state_hash(one) == state_hash(other)


def test_what_has_no_bits_of_its_own_is_refused_by_type():
    with pytest.raises(TypeError, match="observation of type set"):
        state_hash({1, 2})


def test_the_generator_is_part_of_the_state():
    hosted = Hosted(Shows())
    hosted.reset(seed=1)
    before = hosted.state_hash()
    assert hosted.state_hash() == before
    hosted.env.np_random.random()
    assert hosted.state_hash() != before


def test_an_environment_may_say_itself_what_its_state_is():
    hosted = Hosted(TypewriterPolicy())
    hosted.reset(seed=1, options={"target": "ab"})
    hosted.step(np.int64(0))
    other = Typewriter()
    other.reset(seed=2, options={"target": "ab"})
    assert hosted.state_hash() != other.state_hash()
    other.run(Typewriter.TOOLS["type_letter"].read('{"letter":"a"}'))
    assert hosted.state_hash() == other.state_hash()


def test_numpys_flags_and_numbers_become_pythons():
    hosted = Hosted(Shows())
    hosted.reset(seed=1, options={})
    assert hosted.env.options is None
    seen = hosted.step(0)
    assert [type(part) for part in seen[1:4]] == [float, bool, bool]
    assert seen[1:4] == (1.0, False, True)


@pytest.mark.parametrize("make", [Typewriter, lambda: Hosted(Shows())])
def test_a_generator_goes_on_where_another_one_stood(make):
    env, other = make(), make()
    assert generator_state(env) is generator_state(env) is None
    env.reset(seed=5)
    state = generator_state(env)
    set_generator_state(other, state)
    assert generator_state(other) == state
    inner, outer = (e.env if isinstance(e, Hosted) else e for e in (env, other))
    assert inner.np_random.integers(10**9) == outer.np_random.integers(10**9)
    assert generator_state(env) == generator_state(other) != state


def test_other_generators_have_no_state_to_go_on_from():
    env = Shows()
    env.np_random = np.random.Generator(np.random.MT19937(1))
    assert generator_state(env) is None
    with pytest.raises(ValueError, match="PCG64"):
        set_generator_state(env, {"bit_generator": "MT19937", "state": {}})
