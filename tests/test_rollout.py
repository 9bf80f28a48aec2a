"""The Rollout stream does what Gymnasium's vector environments do (S21), row by row."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import grpc
import numpy as np
import pytest
import raw
from envs_for_tests import Broken, Ends
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from raw import TYPEWRITER, letter

import railgym
from env_server.env import Final, ToolCall
from env_server.log import episodes as logged_episodes
from railgym.codec import info_from_proto
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

ENDS, COUNT = "envs_for_tests:Ends", "envs_for_tests:Count"

MODES = {
    AutoresetMode.NEXT_STEP: pb.AUTORESET_MODE_NEXT_STEP,
    AutoresetMode.SAME_STEP: pb.AUTORESET_MODE_SAME_STEP,
    AutoresetMode.DISABLED: pb.AUTORESET_MODE_DISABLED,
}


class Stream:
    """A plain stream: a batch of rows in, their outcomes out."""

    def __init__(self, envs: EnvServiceStub) -> None:
        self._requests: SimpleQueue = SimpleQueue()
        self._replies = envs.Rollout(iter(self._requests.get, None), timeout=60)

    def send(self, *rows: pb.RolloutAction) -> None:
        self._requests.put(pb.RolloutRequest(rows=rows))

    def receive(self) -> list[pb.RolloutOutcome]:
        return list(next(self._replies).rows)

    def play(self, *rows: pb.RolloutAction) -> list[pb.RolloutOutcome]:
        self.send(*rows)
        outcomes = self.receive()
        assert [outcome.slot for outcome in outcomes] == [row.slot for row in rows]
        return outcomes

    def end(self) -> None:
        self._requests.put(None)
        assert list(self._replies) == []


@pytest.fixture
def stream(envs) -> Iterator[Stream]:
    stream = Stream(envs)
    yield stream
    stream.end()


@contextmanager
def stream_to(server) -> Iterator[Stream]:
    with grpc.insecure_channel(server.address) as channel:
        stream = Stream(EnvServiceStub(channel))
        yield stream
        stream.end()


def opens(slot, env_id=ENDS, mode=pb.AUTORESET_MODE_UNSPECIFIED, **fields):
    session = pb.CreateSessionRequest(env_id=env_id, **fields)
    opening = pb.RolloutOpen(session=session, autoreset_mode=mode)
    return pb.RolloutAction(slot=slot, open=opening)


def resets(slot, **fields):
    return pb.RolloutAction(slot=slot, reset=pb.RolloutReset(**fields))


def steps(slot, action):
    return pb.RolloutAction(slot=slot, step=pb.RolloutStep(action=raw.message(action)))


def closes(slot, **fields):
    return pb.RolloutAction(slot=slot, close=pb.RolloutClose(**fields))


def same_infos(slot, infos, info):
    """Whether the entries of one environment in the infos of many are that environment's."""
    mine = {name for name in infos if not name.startswith("_") and infos[f"_{name}"][slot]}
    assert mine == set(info)
    for name in mine:
        if isinstance(info[name], dict):
            same_infos(slot, infos[name], info[name])
        else:
            assert infos[name][slot] == info[name]


@pytest.mark.parametrize("mode", MODES)
def test_a_slot_is_as_an_environment_among_many(stream, mode):
    slots, rng = range(8), np.random.default_rng(1)
    gym = SyncVectorEnv([Ends] * len(slots), autoreset_mode=mode)
    opened = stream.play(*(opens(slot, ENDS, MODES[mode]) for slot in slots))
    assert len({outcome.opened.session_id for outcome in opened}) == len(slots)
    seen, infos = gym.reset(seed=list(slots))
    for slot, outcome in zip(slots, stream.play(*(resets(s, seed=s) for s in slots)), strict=True):
        assert outcome.reset.observation.value.integer == seen[slot]
        same_infos(slot, infos, info_from_proto(outcome.reset.info))

    ends = np.zeros(len(slots), bool)
    ended = 0
    for _ in range(40):
        if mode is AutoresetMode.DISABLED and ends.any():
            gym.reset(options={"reset_mask": ends})
            stream.play(*(resets(slot) for slot in np.flatnonzero(ends)))
        actions = rng.choice([0, 1, 2, 3, 5], len(slots), p=[0.5, 0.1, 0.1, 0.1, 0.2])
        outcomes = stream.play(*(steps(slot, actions[slot]) for slot in slots))
        seen, rewards, terminated, truncated, infos = gym.step(actions)
        for slot in slots:
            there = outcomes[slot].stepped
            transition = there.transition
            assert transition.observation.value.integer == seen[slot]
            assert transition.reward == rewards[slot]
            assert transition.terminated == terminated[slot]
            assert transition.truncated == truncated[slot]
            info = info_from_proto(transition.info)
            if there.HasField("final_observation"):
                info["final_obs"] = there.final_observation.value.integer
                info["final_info"] = info_from_proto(there.final_info)
            same_infos(slot, infos, info)
        ends = terminated | truncated
        ended += int(ends.sum())
    assert ended > 20
    gym.close()


def test_next_step_resets_on_the_step_after_an_end_whatever_the_action(stream):
    stream.play(opens(0), resets(0, seed=1))
    last, first, second = stream.play(steps(0, 3), steps(0, episode_pb2.Action()), steps(0, 4))
    assert (last.stepped.transition.terminated, last.stepped.transition.truncated) == (True, True)
    assert (last.stepped.episode, last.stepped.step) == (1, 1)
    assert (first.stepped.episode, first.stepped.step) == (2, 0)
    assert first.stepped.transition.reward == 0
    assert not first.stepped.transition.terminated
    assert (second.stepped.episode, second.stepped.step) == (2, 1)
    gone = second.stepped.transition.observation.value.integer
    assert gone == first.stepped.transition.observation.value.integer + 4


def test_same_step_keeps_the_last_observation_and_gives_the_first(stream):
    stream.play(opens(0, mode=pb.AUTORESET_MODE_SAME_STEP), resets(0, seed=1))
    (last,) = stream.play(steps(0, 1))
    assert (last.stepped.episode, last.stepped.step) == (2, 0)
    assert last.stepped.transition.end_reason == episode_pb2.END_REASON_GOAL
    assert info_from_proto(last.stepped.final_info) == {"steps": 1}
    begun = info_from_proto(last.stepped.transition.info)["begun_at"]
    assert last.stepped.transition.observation.value.integer == begun


def test_disabled_leaves_the_reset_to_the_client(stream):
    stream.play(opens(0, mode=pb.AUTORESET_MODE_DISABLED), resets(0, seed=1))
    last, over, again, first = stream.play(steps(0, 1), steps(0, 0), resets(0), steps(0, 0))
    assert last.stepped.transition.terminated
    assert over.error.reason == pb.ERROR_REASON_EPISODE_OVER
    assert again.reset.episode == 2
    assert (first.stepped.episode, first.stepped.step) == (2, 1)


def test_a_row_that_fails_has_a_status_and_leaves_the_others_alone(stream):
    stream.play(opens(0, COUNT), resets(0, seed=1), opens(1, "envs_for_tests:Broken"))
    bad = {
        "an empty row": pb.RolloutAction(slot=0),
        "a slot that is taken": opens(0),
        "a slot beyond all": opens(65_536),
        "a slot that is not open": steps(9, 1),
        "a mode of the future": opens(2, mode=9),
        "no environment": opens(3, "nowhere"),
        "no reset": steps(1, 1),
        "a bad action": steps(0, episode_pb2.Action()),
        "bad options": resets(0, options_json="{"),
        "a bad reason": closes(0, reason=episode_pb2.END_REASON_GOAL),
    }
    outcomes = stream.play(*bad.values(), steps(0, 5))
    reasons = {
        name: pb.ErrorReason.Name(outcome.error.reason).removeprefix("ERROR_REASON_")
        for name, outcome in zip(bad, outcomes, strict=False)
    }
    assert reasons == {
        "an empty row": "BAD_REQUEST",
        "a slot that is taken": "BAD_REQUEST",
        "a slot beyond all": "BAD_REQUEST",
        "a slot that is not open": "BAD_REQUEST",
        "a mode of the future": "BAD_REQUEST",
        "no environment": "UNKNOWN_ENV",
        "no reset": "NOT_RESET",
        "a bad action": "BAD_ACTION",
        "bad options": "BAD_OPTIONS",
        "a bad reason": "BAD_REQUEST",
    }
    codes = {outcome.error.code for outcome in outcomes[:-1]}
    values = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    assert codes == {*(code.value[0] for code in values), 9}
    assert all(outcome.error.message and outcome.error.metadata for outcome in outcomes[:-1])
    assert outcomes[-1].stepped.transition.reward == 5


def test_an_environment_that_fails_costs_its_own_row(stream):
    stream.play(opens(0, "envs_for_tests:Broken"), resets(0), opens(1, COUNT), resets(1))
    failed, other, over, again = stream.play(
        steps(0, Broken.RAISES), steps(1, 2), steps(0, 0), resets(0)
    )
    assert failed.error.code == grpc.StatusCode.INTERNAL.value[0]
    assert failed.error.reason == pb.ERROR_REASON_ENV_ERROR
    assert other.stepped.transition.reward == 2
    assert over.error.reason == pb.ERROR_REASON_EPISODE_OVER
    assert again.reset.episode == 2


def test_a_full_server_refuses_rows_and_a_close_makes_room(serve):
    server = serve(capacity=2)
    with stream_to(server) as stream:
        outcomes = stream.play(*(opens(slot) for slot in range(4)))
        kinds = [outcome.WhichOneof("kind") for outcome in outcomes]
        assert kinds == ["opened", "opened", "error", "error"]
        assert outcomes[2].error.reason == pb.ERROR_REASON_TOO_MANY_SESSIONS
        assert dict(outcomes[2].error.metadata) == {"current": "2", "max": "2"}
        closed, opened = stream.play(closes(0), opens(2))
        assert closed.HasField("closed")
        assert opened.HasField("opened")


def test_requests_may_be_sent_ahead(stream):
    stream.send(opens(0, COUNT), resets(0, seed=1))
    for _ in range(200):
        stream.send(steps(0, 1))
    first = stream.receive()[1].reset.observation.value.integer
    seen = [stream.receive()[0].stepped for _ in range(200)]
    assert [s.transition.observation.value.integer for s in seen] == [
        *range(first + 1, first + 201)
    ]
    assert [s.step for s in seen] == [*range(1, 201)]


def test_tools_are_called_on_a_stream_too(stream):
    options = '{"target": "dog", "finish": "final"}'
    stream.play(opens(0, TYPEWRITER), resets(0, seed=1, options_json=options))
    actions = [letter("d"), ToolCall("nonsense"), letter("o"), letter("g"), Final("done")]
    outcomes = stream.play(*(steps(0, action) for action in actions))
    seen = [outcome.stepped.transition for outcome in outcomes]
    assert [t.observation.json for t in seen[:1]] == ['{"result":"d"}']
    assert info_from_proto(seen[1].info) == {"fault": "unknown_tool"}
    assert seen[-1].end_reason == episode_pb2.END_REASON_FINAL
    assert seen[-1].reward == 1


def test_what_a_stream_does_is_in_the_log_and_verifies(serve):
    server = serve()
    with stream_to(server) as stream:
        slots = range(100)
        opened = stream.play(*(opens(slot, ENDS, labels={"agent": "rows"}) for slot in slots))
        session_ids = {outcome.opened.session_id for outcome in opened}
        stream.play(*(resets(slot, seed=slot) for slot in slots))
        for number in range(10):
            outcomes = stream.play(*(steps(slot, (slot + number) % 5) for slot in slots))
            assert len(outcomes) == 100
            assert all(outcome.HasField("stepped") for outcome in outcomes)
    with railgym.connect(server.address) as client:
        scores = list(client.score())
    assert {score.episode_id.partition(".")[0] for score in scores} == session_ids
    assert {(score.outcome, score.labels["agent"]) for score in scores} == {("VERIFIED", "rows")}
    assert {score.end_reason for score in scores} == {"goal", "max_steps", "client_closed"}
    logged = list(logged_episodes(server.log_dir))
    assert {one.problem for one in logged} == {None}


def test_the_end_of_a_stream_closes_its_sessions(envs):
    stream = Stream(envs)
    (opened, _) = stream.play(opens(0), resets(0))
    session_id = opened.opened.session_id
    assert raw.where(envs, session_id).state == pb.SESSION_STATE_RUNNING
    stream.end()
    request = pb.GetSessionRequest(session_id=session_id)
    refusal = raw.refusal(envs.GetSession, request)
    assert (refusal.reason, refusal.metadata["reason"]) == ("SESSION_CLOSED", "client_closed")


def test_make_vec_gives_what_gymnasium_would(server):
    """The client's own vector environment, over the same rows."""
    make = partial(railgym.make_vec, ENDS, num_envs=4, address=server.address)
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        here, there = SyncVectorEnv([Ends] * 4, autoreset_mode=mode), make(autoreset_mode=mode)
        assert (here.reset(seed=3)[0] == there.reset(seed=3)[0]).all()
        for actions in np.random.default_rng(2).choice(4, (30, 4)):
            for one, other in zip(here.step(actions)[:4], there.step(actions)[:4], strict=True):
                assert (one == other).all()
        here.close()
        there.close()
