"""An environment on a server is the environment itself: same spaces, same transitions."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

import railgym
from env_server.env import ToolEnv
from env_server.envs import ENVS
from railgym.registration import ENV_IDS

SERVED = ["CartPole-v1", *ENVS]


def in_process(env_id):
    """The environment itself, with the limit of steps that a server sets."""
    if env_id not in ENVS:
        return gymnasium.make(env_id)
    env = ENVS[env_id]()
    return TimeLimit(env, env.MAX_STEPS) if isinstance(env, ToolEnv) else env


def play(env, steps, seed):
    """Plays on through several episodes; only the first reset is seeded."""
    env.action_space.seed(seed)
    seen = [env.reset(seed=seed)]
    for _ in range(steps):
        seen.append(tuple(env.step(env.action_space.sample())))
        if seen[-1][2] or seen[-1][3]:
            seen.append(env.reset())
    env.close()
    return seen


@pytest.mark.parametrize("env_id", SERVED)
def test_served_is_as_in_process(server, env_id):
    steps = 500 if env_id == "CartPole-v1" else 120
    here, there = in_process(env_id), railgym.make(env_id, server.address)
    assert there.action_space == here.action_space
    assert there.observation_space == here.observation_space
    expected = play(here, steps, seed=7)
    assert sum(len(entry) == 2 for entry in expected) > 1, "expected more than one episode"
    assert data_equivalence(play(there, steps, seed=7), expected, exact=True)


def box():
    return spaces.Box(-1, 1, (2, 3))


class Everything(gymnasium.Env):
    """Shows a value of every kind of space, and echoes its action in the info."""

    observation_space = spaces.Dict(
        {
            "box": spaces.Box(0, 255, (4, 4, 3), np.uint8),
            "discrete": spaces.Discrete(5, start=-2),
            "binary": spaces.MultiBinary([2, 2]),
            "multi": spaces.MultiDiscrete([3, 4], np.int32),
            "text": spaces.Text(5, charset="aé中"),
            "pair": spaces.Tuple([box(), spaces.Discrete(3, dtype=np.uint8)]),
            "many": spaces.Sequence(spaces.Dict({"x": box()})),
            "stack": spaces.Sequence(spaces.Dict({"x": box()}), stack=True),
            "either": spaces.OneOf([box(), spaces.Text(3)]),
            "graph": spaces.Graph(box(), spaces.Discrete(4)),
        }
    )
    action_space = spaces.Tuple(
        [box(), spaces.OneOf([spaces.Discrete(3), spaces.MultiBinary(2)]), spaces.Text(4)]
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {"none": None, "count": 3, "nested": {"ratio": np.float32(0.1)}}

    def step(self, action):
        return self._look(), 0.5, bool(self.np_random.random() < 0.1), False, {"got": repr(action)}

    def _look(self):
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()


def test_every_kind_of_space_is_served(server, registry):
    there = railgym.make(registry.add(f"{__name__}:Everything").env_id, server.address)
    assert there.observation_space == Everything.observation_space
    expected = play(Everything(), 40, seed=3)
    assert data_equivalence(play(there, 40, seed=3), expected, exact=True)


@pytest.mark.parametrize("env_id", SERVED)
def test_gymnasium_finds_no_fault(server, env_id):
    env = railgym.make(env_id, server.address)
    is_cartpole = env_id == "CartPole-v1"  # which renders with pygame, and has infinite bounds
    with warnings.catch_warnings():
        if is_cartpole:
            warnings.filterwarnings("ignore", message=r".*A Box observation space m..imum value")
        check_env(env, skip_render_check=is_cartpole)
    env.close()


def test_every_bundled_environment_is_registered():
    assert set(ENV_IDS) == set(ENVS)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_gymnasium_makes_it(server, env_id):
    with gymnasium.make(f"railgym:{env_id}", address=server.address, render_mode="ansi") as env:
        assert isinstance(env.unwrapped, railgym.RailgymEnv)
        env.reset(seed=1)
        env.step(env.action_space.sample())
        assert isinstance(env.render(), str)


def test_a_task_sets_the_goal(server):
    task_id = "typewriter/reference/dog"
    with railgym.make("railgym/Typewriter-v1", server.address, task_id=task_id) as env:
        assert env.session.task.task_id == task_id
        env.reset()
        for letter in "dog":
            seen = env.step(railgym.call("type_letter", letter=letter))
        assert not seen.terminated
        assert env.step(railgym.Final("dog")).reward == 1.0


def test_nothing_is_opened_before_the_first_use():
    env = railgym.make("CartPole-v1", "localhost:1")
    env.close()
    env.close()
    with pytest.raises(railgym.Unavailable):
        env.reset()


def test_the_seed_in_use_is_told(server):
    with railgym.make("CartPole-v1", server.address) as env:
        first, _ = env.reset()
        seed = env.np_random_seed
        again, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(again, first)
        env.reset(seed=2**64 - 1)
        assert env.np_random_seed == 2**64 - 1


def test_render_shows_nothing_without_a_mode(server):
    with railgym.make("railgym/Typewriter-v1", server.address) as env:
        env.reset()
        with pytest.warns(UserWarning, match="no render_mode"):
            assert env.render() is None


def test_a_render_mode_that_the_environment_does_not_have_is_refused(server):
    env = railgym.make("railgym/Typewriter-v1", server.address, render_mode="rgb_array")
    with pytest.raises(ValueError, match=r"expected a render mode of \['ansi'\] or None"):
        env.reset()


def play_vector(envs, steps, seed):
    envs.action_space.seed(seed)
    seen = [envs.reset(seed=seed)]
    for _ in range(steps):
        *seen_now, infos = envs.step(envs.action_space.sample())
        seen.append((*seen_now, infos))
        ended = seen_now[2] | seen_now[3]
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            seen.append(envs.reset(options={"reset_mask": ended}))
    envs.close()
    return seen


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("env_id", SERVED)
def test_a_served_vector_is_as_gymnasiums_own(server, env_id, mode):
    here = SyncVectorEnv([lambda: in_process(env_id)] * 3, autoreset_mode=mode)
    there = railgym.make_vec(env_id, 3, server.address, autoreset_mode=mode)
    assert there.metadata["autoreset_mode"] is mode
    assert there.single_action_space == here.single_action_space
    assert there.observation_space == here.observation_space
    steps = 60 if env_id == "CartPole-v1" else 25
    expected = play_vector(here, steps, seed=5)
    assert data_equivalence(play_vector(there, steps, seed=5), expected, exact=True)


def test_gymnasium_makes_a_vector(server):
    envs = gymnasium.make_vec(
        "railgym:railgym/TypewriterPolicy-v1", num_envs=2, address=server.address
    )
    assert isinstance(envs, railgym.RailgymVectorEnv)
    observations, infos = envs.reset(seed=[3, None])
    assert observations.shape == (2, 2, 16)
    assert infos == {}
    envs.close()
    envs.close()


def test_a_row_that_fails_is_an_error_with_its_reason(server):
    with pytest.raises(railgym.UnknownEnv, match="slot 0: no environment 'no/Such-v1'") as caught:
        railgym.make_vec("no/Such-v1", 2, server.address)
    assert caught.value.code == "NOT_FOUND"
    assert caught.value.metadata["env_id"] == "no/Such-v1"
    envs = railgym.make_vec("CartPole-v1", 2, server.address)
    with pytest.raises(railgym.NotReset):
        envs.step(np.array([0, 1]))
    with pytest.raises(ValueError, match="expected 2 seeds, got 3"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="expected a reset_mask of 2 bools"):
        envs.reset(options={"reset_mask": np.zeros(2, bool)})
    envs.reset(seed=1)
    envs.close()
    with pytest.raises(railgym.Unavailable):
        envs.step(np.array([0, 1]))


FORK = """
import gymnasium, railgym
from gymnasium.vector import AsyncVectorEnv

before = railgym.make("CartPole-v1", {address!r})
before.reset(seed=1)
envs = AsyncVectorEnv([lambda: railgym.make("CartPole-v1", {address!r})] * 2, context="fork")
observations, _ = envs.reset(seed=1)
envs.step(envs.action_space.sample())
envs.close()
assert (before.reset(seed=1)[0] == observations[0]).all()
before.close()
"""


def test_processes_that_were_forked_have_channels_of_their_own(server):
    program = FORK.format(address=server.address)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
