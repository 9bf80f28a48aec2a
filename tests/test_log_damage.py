"""A damaged log: what was whole stays, what is not is named, and nobody else is touched."""

import hashlib
import tempfile
from itertools import count
from pathlib import Path

import pytest

from env_server.log import Chain, Damage, LogWriter, episodes, frames, group, read
from railgym.v1 import episode_pb2 as pb

A, B = "a" * 16, "b" * 16
NOBODY = ("", 0)


def step(number, last=False):
    return pb.StepTaken(
        step=number,
        action=pb.Action(tool_call=pb.ToolCall(name="type_letter", arguments_json="{}")),
        transition=pb.Transition(
            reward=float(last), terminated=last, observation=pb.Observation(json="{}")
        ),
    )


def write_sample():
    """Session A plays two episodes and closes; between its records, B plays one and does not end.

    Returns:
        The payloads, and for each the episode and the step that its loss concerns.
    """
    a, b = Chain(A), Chain(B)
    records = [
        (a.record(session_opened=pb.SessionOpened(env_id="e")), NOBODY),
        (a.record(f"{A}.1", episode_started=pb.EpisodeStarted(env_id="e", seed=1)), (f"{A}.1", 0)),
        (b.record(session_opened=pb.SessionOpened(env_id="e")), NOBODY),
        (a.record(f"{A}.1", step_taken=step(1)), (f"{A}.1", 1)),
        (b.record(f"{B}.1", episode_started=pb.EpisodeStarted(env_id="e", seed=2)), (f"{B}.1", 0)),
        (a.record(f"{A}.1", step_taken=step(2)), (f"{A}.1", 2)),
        (b.record(f"{B}.1", step_taken=step(1)), (f"{B}.1", 1)),
        (a.record(f"{A}.1", step_taken=step(3, last=True)), (f"{A}.1", 3)),
        (
            a.record(f"{A}.1", episode_ended=pb.EpisodeEnded(reason="END_REASON_GOAL")),
            (f"{A}.1", 3),
        ),
        (b.record(f"{B}.1", agent_claim=pb.AgentClaim(claim_json="{}")), (f"{B}.1", 1)),
        (a.record(f"{A}.2", episode_started=pb.EpisodeStarted(env_id="e")), (f"{A}.2", 0)),
        (a.record(f"{A}.2", step_taken=step(1)), (f"{A}.2", 1)),
        (b.record(f"{B}.1", step_taken=step(2)), (f"{B}.1", 2)),
        (a.record(f"{A}.2", step_taken=step(2, last=True)), (f"{A}.2", 2)),
        (
            a.record(f"{A}.2", episode_ended=pb.EpisodeEnded(reason="END_REASON_GOAL")),
            (f"{A}.2", 2),
        ),
        (a.record(session_closed=pb.SessionClosed()), NOBODY),
        (b.record(f"{B}.1", step_taken=step(3)), (f"{B}.1", 3)),
    ]
    return [payload for payload, _ in records], [hit for _, hit in records]


PAYLOADS, HITS = write_sample()
EVENTS = [pb.EpisodeEvent.FromString(payload) for payload in PAYLOADS]
OFFSETS = [sum(len(frames.encode(p)) for p in PAYLOADS[:i]) for i in range(len(PAYLOADS) + 1)]
LAST = {EVENTS.index(max(EVENTS, key=lambda e: (e.session_id == s, e.sequence))) for s in (A, B)}
EVERY = range(len(PAYLOADS))


def segment(folder, payloads):
    path = folder / "00000001-sample00.rgl"
    path.write_bytes(b"".join(frames.encode(payload) for payload in payloads))
    return path


@pytest.fixture
def tmp_path(tmp_path):
    """In memory where the machine has such a place: these tests flush thousands of times."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The episodes of the undamaged sample, by id."""
    log = {e.episode_id: e for e in episodes(segment(tmp_path_factory.mktemp("whole"), PAYLOADS))}
    assert list(log) == [f"{A}.1", f"{A}.2", f"{B}.1"]
    assert [len(episode.steps) for episode in log.values()] == [3, 2, 3]
    assert all(episode.problem is None for episode in log.values())
    return log


def problem_in(records, whole):
    """The one problem of a log, as (episode_id, step) and place; all else must be as it was."""
    found = list(group(records))
    flawed = [episode for episode in found if episode.problem]
    sound = {episode.episode_id: episode for episode in found if not episode.problem}
    touched = {episode.episode_id for episode in flawed}
    assert sound == {name: episode for name, episode in whole.items() if name not in touched}
    assert len(flawed) <= 1, flawed
    if not flawed:
        return None, None
    return (flawed[0].episode_id, flawed[0].problem.step), flawed[0].problem.place


@pytest.mark.parametrize("i", EVERY)
def test_a_flipped_byte_is_named_at_its_record_and_hits_nobody_else(i, tmp_path, whole):
    path = segment(tmp_path, PAYLOADS)
    good = path.read_bytes()
    id_bytes = range(OFFSETS[i] + 12, OFFSETS[i] + 14 + len(A))
    for at in range(OFFSETS[i], OFFSETS[i + 1]):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        found = list(read(path))
        damage = [item for item in found if isinstance(item, Damage)]
        assert [(d.offset, d.length) for d in damage] == [(OFFSETS[i], OFFSETS[i + 1] - OFFSETS[i])]
        if i in LAST and at in id_bytes:  # nobody can tell whose it was
            (nobody,) = (episode for episode in group(found) if episode.problem)
            assert (nobody.session_id, nobody.problem.place) == ("", f"{path}:{OFFSETS[i]}")
        else:
            assert problem_in(found, whole) == (HITS[i], f"{path}:{OFFSETS[i]}"), at - OFFSETS[i]


@pytest.mark.parametrize("i", EVERY)
def test_a_missing_record_is_named(i, tmp_path, whole):
    path = segment(tmp_path, PAYLOADS[:i] + PAYLOADS[i + 1 :])
    if i in LAST:  # it looks like a crash
        lost = EVENTS[i].episode_id
        assert {e.episode_id: e for e in episodes(path) if e.episode_id != lost} == {
            name: episode for name, episode in whole.items() if name != lost
        }
        assert not [episode for episode in episodes(path) if episode.problem]
    else:
        assert problem_in(read(path), whole)[0] == HITS[i]


@pytest.mark.parametrize("i", EVERY)
def test_a_double_record_is_named(i, tmp_path, whole):
    path = segment(tmp_path, PAYLOADS[: i + 1] + PAYLOADS[i:])
    assert problem_in(read(path), whole) == (HITS[i], f"{path}:{OFFSETS[i + 1]}")


@pytest.mark.parametrize("i", EVERY)
def test_an_altered_record_is_named_by_the_next_one(i, tmp_path, whole):
    event = pb.EpisodeEvent()
    event.CopyFrom(EVENTS[i])
    event.time.nanos ^= 1
    path = segment(tmp_path, [*PAYLOADS[:i], event.SerializeToString(), *PAYLOADS[i + 1 :]])
    flawed = [(e.episode_id, e.problem.step, e.problem.place) for e in episodes(path) if e.problem]
    offset = OFFSETS[i]
    assert flawed == ([] if i in LAST else [(*HITS[i], f"{path}:{offset}")])


def test_an_altered_reward_is_named_at_its_step(tmp_path, whole):
    i = HITS.index((f"{A}.1", 2))
    event = pb.EpisodeEvent.FromString(PAYLOADS[i])
    event.step_taken.transition.reward = 1.0
    path = segment(tmp_path, [*PAYLOADS[:i], event.SerializeToString(), *PAYLOADS[i + 1 :]])
    assert problem_in(read(path), whole) == ((f"{A}.1", 2), f"{path}:{OFFSETS[i]}")


@pytest.mark.parametrize("i", EVERY)
def test_swapped_records_are_named_at_the_first_that_is_out_of_place(i, tmp_path, whole):
    j = next((j for j in EVERY[i + 1 :] if EVENTS[j].session_id == EVENTS[i].session_id), None)
    if j is None:
        return
    swapped = list(PAYLOADS)
    swapped[i], swapped[j] = swapped[j], swapped[i]
    flawed = [(e.episode_id, e.problem) for e in episodes(segment(tmp_path, swapped)) if e.problem]
    assert HITS[i] in [(name, problem.step) for name, problem in flawed]
    touched = {EVENTS[i].episode_id, EVENTS[j].episode_id, ""}
    assert {name for name, _ in flawed} <= touched


def test_a_missing_segment_hits_the_episodes_that_reach_into_it(tmp_path):
    a, b = Chain(A), Chain(B)
    opened, started = pb.SessionOpened(), pb.EpisodeStarted()
    a1, a2, b1 = f"{A}.1", f"{A}.2", f"{B}.1"
    parts = [
        [a.record(session_opened=opened), a.record(a1, episode_started=started)],
        [a.record(a1, step_taken=step(1)), b.record(session_opened=opened)],
        [a.record(a1, step_taken=step(2)), a.record(a1, step_taken=step(3, last=True))],
        [a.record(a2, episode_started=started), b.record(b1, episode_started=started)],
    ]
    with LogWriter(tmp_path, segment_bytes=1) as writer:
        for part in parts:
            writer.append(part)
    _, missing, third, _ = sorted(tmp_path.iterdir())
    missing.unlink()
    found = {e.episode_id: e.problem for e in episodes(tmp_path)}
    assert (found[a1].step, found[a1].place) == (1, f"{third}:0")
    assert found[a2] is None
    assert found[b1] is None
    assert "expected record 0" in found[""].reason


def test_a_segment_that_stands_twice_gives_no_episode_twice(tmp_path, whole):
    path = segment(tmp_path, PAYLOADS)
    path.with_name("00000002-copy0000.rgl").write_bytes(path.read_bytes())
    found = list(episodes(tmp_path))
    assert sorted(e.episode_id for e in found if e.episode_id) == sorted(whole)
    assert [e.session_id for e in found if not e.episode_id] == [A, B]  # told once for each


def test_a_wrong_step_number_is_named_even_where_the_chain_is_whole(tmp_path):
    for numbers, wrong in [((1, 2, 4), 3), ((1, 2, 2), 2), ((2,), 1), ((1, 3, 2), 2)]:
        chain = Chain(A)
        payloads = [chain.record(f"{A}.1", episode_started=pb.EpisodeStarted())]
        payloads += [chain.record(f"{A}.1", step_taken=step(number)) for number in numbers]
        (episode,) = episodes(segment(tmp_path, payloads))
        assert episode.problem.step == wrong, numbers


def test_a_step_before_the_start_or_after_the_end_is_named(tmp_path):
    chain = Chain(A)
    ended = pb.EpisodeEnded(reason="END_REASON_GOAL")
    payloads = [
        chain.record(f"{A}.1", step_taken=step(1)),
        chain.record(f"{A}.2", episode_started=pb.EpisodeStarted()),
        chain.record(f"{A}.2", step_taken=step(1)),
        chain.record(f"{A}.2", episode_ended=ended),
        chain.record(f"{A}.2", step_taken=step(2)),
        chain.record(f"{A}.3", episode_started=pb.EpisodeStarted()),
        chain.record(f"{A}.3", episode_ended=ended),
        chain.record(f"{A}.3", episode_ended=ended),
    ]
    found = list(episodes(segment(tmp_path, payloads)))
    assert [episode.problem.step for episode in found] == [0, 2, 0]


def test_an_environment_that_failed_before_its_start_is_no_problem_of_the_log(tmp_path):
    chain = Chain(A)
    payloads = [
        chain.record(f"{A}.1", server_fault=pb.ServerFault(error="ZeroDivisionError")),
        chain.record(f"{A}.1", episode_ended=pb.EpisodeEnded(reason="END_REASON_ENV_ERROR")),
    ]
    (episode,) = episodes(segment(tmp_path, payloads))
    assert episode.started is None
    assert episode.problem is None
    assert episode.faults[0].error == "ZeroDivisionError"


def test_unknown_kinds_are_skipped_and_hold_the_chain_together(tmp_path):
    chain = Chain(A)
    payloads = [chain.record(f"{A}.1", episode_started=pb.EpisodeStarted())]
    unknown = chain.record(f"{A}.1", server_fault=pb.ServerFault())
    event = pb.EpisodeEvent.FromString(unknown)
    event.ClearField("server_fault")
    payloads.append(event.SerializeToString() + b"\xa2\x06\x02\x08\x01")  # field 100, a message
    chain.previous = hashlib.sha256(payloads[-1]).digest()
    payloads.append(chain.record(f"{A}.1", step_taken=step(1)))
    (episode,) = episodes(segment(tmp_path, payloads))
    assert (episode.problem, episode.latest) == (None, 1)
    (episode,) = episodes(segment(tmp_path, [payloads[0], payloads[2]]))
    assert episode.problem.step == 0


def test_a_good_frame_that_holds_no_event_is_damage(tmp_path):
    path = segment(tmp_path, [PAYLOADS[0], b"\xff\xff", PAYLOADS[1]])
    kinds = [type(item).__name__ for item in read(path)]
    assert kinds == ["Record", "Damage", "Record"]


@pytest.mark.parametrize("noise", [b"\0" * 5000, b"\xff" * 5000, frames.MAGIC * 1000, b"text"])
def test_noise_between_records_is_one_place_of_damage(noise, tmp_path, whole):
    path = tmp_path / "00000001-noise.rgl"
    half = OFFSETS[7]
    good = segment(tmp_path, PAYLOADS).read_bytes()
    segment(tmp_path, PAYLOADS).unlink()
    path.write_bytes(good[:half] + noise + good[half:])
    assert [(d.offset, d.length) for d in read(path) if isinstance(d, Damage)] == [
        (half, len(noise))
    ]
    assert problem_in(read(path), whole) == (NOBODY, f"{path}:{half}")


def test_a_frame_is_found_after_damage_wherever_a_block_ends(tmp_path):
    path = tmp_path / "00000001-noise.rgl"
    for size in range(2**20 - 16, 2**20 + 2):
        path.write_bytes(b"x" * size + frames.encode(PAYLOADS[0]))
        damage, record = read(path)
        assert (damage.offset, damage.length, record.event) == (0, size, EVENTS[0])


def test_damage_explains_no_gap_that_came_after_it(tmp_path, whole):
    missing = HITS.index((f"{A}.1", 2))
    path = segment(tmp_path, PAYLOADS[:missing] + PAYLOADS[missing + 1 :])
    good = path.read_bytes()
    path.write_bytes(b"noise" + good)
    named = {e.episode_id: e.problem.place for e in episodes(path) if e.problem}
    following = HITS.index((f"{A}.1", 3)) - 1
    lost = OFFSETS[missing + 1] - OFFSETS[missing]
    assert named == {
        "": f"{path}:0",
        f"{A}.1": f"{path}:{OFFSETS[following + 1] - lost + len(b'noise')}",
    }


def test_a_claim_that_is_lost_after_the_end_hits_its_episode(tmp_path):
    chain = Chain(A)
    claim = pb.AgentClaim(claim_json="{}")
    payloads = [
        chain.record(f"{A}.1", episode_started=pb.EpisodeStarted()),
        chain.record(f"{A}.1", step_taken=step(1, last=True)),
        chain.record(f"{A}.1", episode_ended=pb.EpisodeEnded()),
        chain.record(f"{A}.1", agent_claim=claim),
        chain.record(f"{A}.1", agent_claim=claim),
    ]
    del payloads[3]
    (episode,) = episodes(segment(tmp_path, payloads))
    assert (episode.episode_id, episode.problem.step) == (f"{A}.1", 1)


def test_a_log_cut_at_any_byte_keeps_every_complete_record_and_goes_on(tmp_path):
    good = segment(tmp_path, PAYLOADS[:4]).read_bytes()
    for cut in range(len(good) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        path = folder / "00000001-sample00.rgl"
        path.write_bytes(good[:cut])
        whole = next(n for n in count() if n == 4 or OFFSETS[n + 1] > cut)
        assert len(list(read(path))) == whole
        with LogWriter(folder) as writer:
            torn = cut - OFFSETS[whole]
            assert writer.cut == ([(path, OFFSETS[whole], torn)] if torn else [])
            assert path.stat().st_size == OFFSETS[whole]
            writer.append([PAYLOADS[4]])
        assert [item.event for item in read(folder)] == [*EVENTS[:whole], EVENTS[4]]


def test_a_torn_tail_is_found_in_a_large_segment(tmp_path):
    path = tmp_path / "00000001-large.rgl"
    frame = frames.encode(b"x" * 3_000_000)
    for tail in (b"", frame[:20], frame[:2_900_000]):
        path.write_bytes(frame * 2 + tail)
        torn = frames.torn_tail(path)
        assert torn == ((path, 2 * len(frame), len(tail)) if tail else None)


def test_zeros_at_the_end_are_damage_and_are_not_cut(tmp_path):
    path = segment(tmp_path, PAYLOADS)
    path.write_bytes(path.read_bytes() + b"\0" * 100)
    with LogWriter(tmp_path) as writer:
        assert writer.cut == []
    assert [(d.offset, d.length) for d in read(path) if isinstance(d, Damage)] == [
        (OFFSETS[-1], 100)
    ]
    assert Path(path).stat().st_size == OFFSETS[-1] + 100
