"""A fork is its parent, a seed is the episode, and a score is the same wherever it is computed."""

import itertools
import random

import pytest

import railgym
from env_server.env import Final, Text, ToolCall
from env_server.envs import ENVS
from env_server.log import episodes as logged_episodes
from env_server.scoring.score import score_log
from railgym.v1 import episode_pb2

SERVED = [*ENVS, "CartPole-v1", "envs_for_tests:Ends", "envs_for_tests:Notes"]

BURN = ToolCall("burn", "{}")
"""The one call that makes an environment fail."""

OPTIONS = {
    "railgym/Typewriter-v1": {"finish": "final"},
    "railgym/TypewriterKeys-v1": {"finish": "final"},
    "railgym/Orders-v1": {"world": "episode"},
    "railgym/Relational-v1": {"world": "episode"},
    "railgym/MultiverseMath-v1": {"universe": "episode"},
}
"""Of each environment, options with which it is stochastic, and does not end at once."""


@pytest.fixture
def client(server):
    with railgym.connect(server.address) as client:
        yield client


def draw(session, count, seed):
    space = session.env.action_space
    space.seed(seed)
    drawn = (space.sample() for _ in itertools.count())
    return list(itertools.islice((action for action in drawn if repr(action) != repr(BURN)), count))


def play(session, actions):
    """Takes the steps, with an unseeded reset after each end, and gives all that is seen."""
    seen = []
    for action in actions:
        if session.end_reason is not None:
            seen.append((session.reset(), session.state_hash))
        seen.append((session.step(action), session.state_hash, session.end_reason))
    return [repr(one) for one in seen]


@pytest.mark.parametrize("env_id", SERVED)
def test_a_fork_goes_on_as_its_parent(client, env_id):
    parent = client.session(env_id, labels={"agent": "parent", "run": "1"})
    if env_id == "railgym/TypewriterPolicy-v1":
        parent.reset(seed=5, options={"target": "a" * 16})
        actions = [0] * 9
    else:
        parent.reset(seed=5, options=OPTIONS.get(env_id))
        actions = draw(parent, 9, seed=1)
    seen = play(parent, actions)
    steps, here, episode_id = parent.steps, parent.state_hash, f"{parent.id}.{parent.episode}"
    assert steps > 0
    earlier = random.Random(env_id).randrange(steps)

    now = parent.fork(labels={"agent": "child"})
    before = parent.fork(step=earlier)
    assert len({parent.id, now.id, before.id}) == 3
    assert (now.steps, now.state_hash) == (steps, here)
    assert (before.steps, now.episode, before.episode) == (earlier, 1, 1)

    again = actions[len(actions) - steps + earlier :]
    assert play(before, again) == seen[len(seen) - steps + earlier :]
    assert before.state_hash == here
    further = draw(parent, 20, seed=2)
    child = play(now, further)
    assert client.resume(parent.id).state_hash == here, "expected the parent where it was"
    assert play(parent, further) == child
    parent.close()
    assert play(now, further[:3])
    now.close()

    (first, *_) = client.read_episode(f"{now.id}.1")
    origin = episode_pb2.ForkOrigin(episode_id=episode_id, step=steps)
    assert first.episode_started.forked_from == origin
    assert first.episode_started.labels == {"agent": "child", "run": "1"}
    for session in (now, before):
        for score in client.score([f"{session.id}.1"]):
            assert (score.outcome, score.detail) == ("VERIFIED", "")
    before.close()


def begin(client, env_id, seed):
    session = client.session(env_id)
    first = session.reset(seed=seed, options=OPTIONS.get(env_id))
    return session, repr((first, session.state_hash))


@pytest.mark.parametrize("env_id", SERVED)
def test_a_seed_is_the_episode_and_those_after_it(client, env_id):
    (one, first), (other, second) = begin(client, env_id, 3), begin(client, env_id, 3)
    assert first == second
    actions = draw(one, 10, seed=4)
    # In turns, so that a generator that both draw from would show.
    steps = [(play(one, [action]), play(other, [action])) for action in actions]
    assert [a for a, _ in steps] == [b for _, b in steps]
    for _ in range(2):
        resets = [
            (session.reset(options=OPTIONS.get(env_id)), session.state_hash)
            for session in (one, other)
        ]
        assert repr(resets[0]) == repr(resets[1])
        assert (one.seed, other.seed) == (None, None)
    one.close()
    other.close()


@pytest.mark.parametrize("env_id", SERVED)
def test_another_seed_is_another_episode(client, env_id):
    seen = {}
    for seed in (0, 1, 2**64 - 1, None, None):
        session, first = begin(client, env_id, seed)
        drawn = session.seed
        assert drawn == seed or seed is None
        assert begin(client, env_id, drawn)[1] == first, "expected the seed to be told"
        shown = session.render() if "ansi" in session.env.render_modes else None
        seen[drawn] = (first, shown, play(session, draw(session, 3, seed=6)))
    assert len(seen) == 5
    assert len({repr(one) for one in seen.values()}) == 5


# The score of a log (S10)


def on_the_wire(here, there, field):
    """A value as the wire has it, where texts and lists that are not there are empty ones."""
    value, kind = getattr(here, field), type(getattr(there, field))
    return kind() if value is None and kind in (str, list, dict) else value


def test_a_score_is_the_same_from_the_service_and_from_the_disk(serve, registry):
    server = serve()
    with railgym.connect(server.address) as client:
        for number, env_id in enumerate(SERVED):
            session, _ = begin(client, env_id, number)
            play(session, draw(session, 10, seed=number))
            session.close()
        for task_id in ["typewriter/reference/dog", "relational/reference/1"]:
            if task_id not in registry.tasks:
                task_id = next(name for name in registry.tasks if name.startswith("relational/"))
            with client.session(task_id=task_id, labels={"agent": "a", "trial": "1"}) as session:
                session.reset()
                for action in (ToolCall("nonsense"), Text("prose"), Final("42")):
                    session.step(action)
        client.session("CartPole-v1").reset()  # which runs
        remote = {score.episode_id: score for score in client.score()}
        local = {score.episode_id: score for score in score_log(server.log_dir, registry)}
    assert set(remote) == set(local)
    assert len(remote) > len(SERVED) + 2
    for episode_id, there in remote.items():
        here = local[episode_id]
        assert here.outcome == there.outcome == "VERIFIED"
        for field in set(there._fields) & set(here._fields):
            assert (field, getattr(there, field)) == (field, on_the_wire(here, there, field))
    assert {score.valid for score in local.values()} == {True, False}
    assert [logged.problem for logged in logged_episodes(server.log_dir)] == [None] * len(local)
