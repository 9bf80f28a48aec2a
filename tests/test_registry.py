"""Which environments there are: the bundled ones, Gymnasium's, and a user's own classes."""

import subprocess
import sys

import pytest
from gymnasium import spaces
from playing import make_task

from env_server.env import Plain, ToolCall, ToolEnv, tool
from env_server.envs import ENVS
from env_server.episode import Episode, EpisodeSpec
from env_server.errors import BadRequest, UnknownEnv, UnknownTask
from env_server.registry import Registry
from railgym._version import __version__


class Bell(ToolEnv):
    """Rings.

    And does nothing else.
    """

    def _begin(self):
        self.rings = 0

    def state(self):
        return {"rings": self.rings}

    @tool
    def ring(self) -> int:
        """Rings."""
        self.rings += 1
        return self.rings


@pytest.mark.parametrize("env_id", ENVS)
def test_a_bundled_environment_says_what_it_is(env_id):
    entry = Registry().env(env_id)
    assert entry.env_id == env_id
    assert entry.version == f"railgym {__version__}"
    assert entry.description
    assert entry.env_class is ENVS[env_id]
    assert entry.options_schema["additionalProperties"] is False
    assert not entry.is_foreign
    assert entry.is_plain == (not hasattr(entry.env_class, "TOOLS"))
    assert entry.make() is not entry.make()


@pytest.mark.parametrize(
    ("env_id", "nearest"),
    [
        ("typewritter/Typewriter-v0", "railgym/Typewriter-v1"),
        ("railgym/Typewriter-v9", "railgym/Typewriter-v1"),
        ("railgym/typewriter-v1", "railgym/Typewriter-v1"),
        ("Relational", "railgym/Relational-v1"),
        ("multiverse_math", "railgym/MultiverseMath-v1"),
        ("gym/Nothing-v1", "railgym/"),
        ("", "railgym/"),
        ("x" * 10_000, "railgym/"),
        ("\x00\ud800%s{0}", "railgym/"),
    ],
)
def test_an_unknown_environment_is_answered_with_the_nearest_ones(env_id, nearest):
    registry = Registry()
    with pytest.raises(UnknownEnv) as caught:
        registry.env(env_id)
    assert str(caught.value).startswith("no environment ")
    assert nearest in caught.value.metadata["nearest"]
    assert caught.value.metadata["env_id"] == env_id[:200]
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("task_id", ["", "typewriter/reference/dgo", "x" * 10_000, "\ud800"])
def test_an_unknown_task_is_answered_with_the_nearest_ones(task_id):
    registry = Registry()
    with pytest.raises(UnknownTask) as caught:
        registry.task(task_id)
    near = caught.value.metadata["nearest"].split(",")
    assert 1 <= len(near) <= 3
    assert set(near) <= set(registry.tasks)
    assert ("typewriter/reference/dog" in near) == ("dgo" in task_id)
    assert len(str(caught.value)) < 400


def test_a_registry_without_tasks_says_so_too():
    with pytest.raises(UnknownTask):
        Registry({}).task("typewriter/reference/dog")


def test_tasks_can_be_a_users_own():
    task = make_task()
    registry = Registry({task.task_id: task})
    assert registry.task("test/dog") is task
    with pytest.raises(UnknownTask, match="test/dog"):
        registry.task("typewriter/reference/dog")


def test_gymnasiums_environments_can_be_added():
    registry = Registry({})
    with pytest.raises(UnknownEnv):
        registry.env("CartPole-v1")
    entry = registry.add("CartPole-v1")
    assert registry.env("CartPole-v1") is registry.add("CartPole-v1") is entry
    assert (entry.is_plain, entry.is_foreign, entry.options_schema) == (True, True, None)
    assert entry.version.startswith("gymnasium ")
    assert "cart" in entry.description
    env = entry.make()
    assert env.action_space == spaces.Discrete(2)
    assert env.env.render_mode == "rgb_array"
    reply = Episode(EpisodeSpec("CartPole-v1"), env).step(1, Plain(1))
    assert reply.transition.reward == 1.0
    env.close()


def test_gymnasiums_limit_of_steps_cuts_off():
    env = Registry({}).add("MountainCar-v0").make()
    episode = Episode(EpisodeSpec("MountainCar-v0"), env)
    replies = [episode.step(number, Plain(1)) for number in range(1, 201)]
    assert {reply.end for reply in replies[:-1]} == {None}
    assert replies[-1].transition[2:4] == (False, True)
    assert replies[-1].end == "max_steps"


def test_tool_environments_of_a_user_can_be_added():
    entry = Registry({}).add(f"{__name__}:Bell")
    assert entry.description == "Rings.\n\nAnd does nothing else."
    assert (entry.is_plain, entry.is_foreign) == (False, True)
    assert [*entry.tools] == ["ring"]
    episode = Episode(EpisodeSpec(entry.env_id), entry.make())
    assert episode.step(1, ToolCall("ring")).transition.observation == '{"result":1}'


def test_plain_environments_of_a_user_can_be_added():
    name = "gymnasium.envs.classic_control.pendulum:PendulumEnv"
    entry = Registry({}).add(name)
    assert entry.is_plain
    episode = Episode(EpisodeSpec(name), entry.make())
    assert episode.env.env.render_mode == "rgb_array"
    first = episode.step(1, Plain(episode.env.action_space.sample()))
    assert first.state_hash != episode.start.state_hash


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 10_000,
        "CartPol-v1",
        "CartPole-v99",
        "no_such_module:Env",
        "env_server.envs.typewriter:Typewritter",
        "json:",
        ":Env",
        ":",
        ".relative:Env",
        "a..b:Env",
        "json:a.b",
        "GymV21Environment-v0",
    ],
)
def test_what_cannot_be_loaded_is_unknown(name):
    registry = Registry({})
    with pytest.raises(UnknownEnv) as caught:
        registry.add(name)
    near = caught.value.metadata["nearest"].split(",")
    assert len(near) == len(set(near))
    assert ("CartPole-v1" in near) == name.startswith("CartPol")
    assert [*registry.envs] == [*ENVS]
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["json:dumps", "json:JSONDecoder", "env_server.errors:UnknownEnv"])
def test_what_is_no_environment_is_refused(name):
    with pytest.raises(BadRequest, match=r"expected a subclass of gymnasium.Env, got"):
        Registry({}).add(name)


def test_a_class_with_a_tool_of_a_reserved_name_is_refused_by_name(tmp_path, monkeypatch):
    (tmp_path / "cheating.py").write_text(
        "from env_server.env import ToolEnv, tool\n"
        "class Cheat(ToolEnv):\n"
        "    @tool\n"
        "    def reset(self) -> None:\n"
        "        'Begins again.'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownEnv, match="a tool cannot be named 'reset'"):
        Registry({}).add("cheating:Cheat")


def test_the_environment_side_knows_no_wire():
    code = (
        "import sys, env_server.episode, env_server.registry, env_server.lint, env_server.gold\n"
        "wire = [m for m in sys.modules if m.split('.')[0] in ('grpc', 'google')]\n"
        "sys.exit(', '.join(wire) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
