"""The log: what is appended is read back, by any process, at any moment, and after any death."""

import io
import json
import signal
import subprocess
import sys
import tempfile
import textwrap
import zlib
from pathlib import Path

import duckdb
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from env_server.arguments import canonical_json
from env_server.log import (
    Chain,
    LogIndex,
    LogUnwritable,
    LogWriter,
    NotALog,
    episodes,
    frames,
    group,
    is_live,
    read,
)
from env_server.log.export import COLUMNS, write_json_lines, write_parquet
from env_server.log.frames import Frame, Torn
from railgym.v1 import episode_pb2 as pb
from railgym.v1 import space_pb2


def call(number, arguments="{}", **transition):
    return pb.StepTaken(
        step=number,
        action=pb.Action(tool_call=pb.ToolCall(name="add", arguments_json=arguments)),
        transition=pb.Transition(**transition),
    )


def opening(chain, **opened):
    """The first two records of a session."""
    started = pb.EpisodeStarted(env_id="e", seed=2**64 - 1, labels={"agent": "x"})
    return [
        chain.record(session_opened=pb.SessionOpened(env_id="e", **opened)),
        chain.record(f"{chain.session_id}.1", episode_started=started),
    ]


def steps(chain, numbers):
    episode_id = f"{chain.session_id}.1"
    return [chain.record(episode_id, step_taken=call(number)) for number in numbers]


def child(code, *arguments):
    """Starts a process that runs `code` with the log's names at hand."""
    head = "import sys, os\nfrom pathlib import Path\nfrom env_server.log import *\n"
    head += "from railgym.v1 import episode_pb2 as pb\nfolder = Path(sys.argv[1])\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


# Frames


@given(st.lists(st.binary(max_size=300) | st.just(frames.MAGIC * 3), max_size=8), st.data())
@settings(deadline=None, max_examples=60)
def test_a_cut_file_gives_its_whole_frames_and_what_is_torn(payloads, data):
    encoded = [frames.encode(payload) for payload in payloads]
    whole = b"".join(encoded)
    cut = data.draw(st.integers(0, len(whole)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.rgl"
        path.write_bytes(whole[:cut])
        found = list(frames.scan(path))
    complete = [i for i in range(len(encoded)) if len(b"".join(encoded[: i + 1])) <= cut]
    offset = len(b"".join(encoded[: len(complete)]))
    torn = [Torn(path, offset, cut - offset)] if cut > offset else []
    assert [item.payload for item in found if isinstance(item, Frame)] == payloads[: len(complete)]
    assert [item for item in found if not isinstance(item, Frame)] == torn


def test_a_frame_is_as_the_format_says():
    body = (3).to_bytes(4, "little") + b"abc"
    checksum = zlib.crc32(body).to_bytes(4, "little")
    assert frames.encode(b"abc") == b"\xffRGL" + body[:4] + checksum + b"abc"


def test_frames_larger_than_a_block_are_read(tmp_path):
    path = tmp_path / "a.rgl"
    payloads = [b"x" * frames.MAX_PAYLOAD, b"", b"y" * 3_000_000]
    path.write_bytes(b"".join(map(frames.encode, payloads)))
    assert [item.payload for item in frames.scan(path)] == payloads


def test_a_payload_over_the_limit_is_refused_and_leaves_the_log_alone(tmp_path):
    with LogWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="at most 16,777,216 bytes, got 16,777,217"):
            writer.append([b"fine", b"x" * (frames.MAX_PAYLOAD + 1)])
        assert list(read(tmp_path)) == []


# The chain


def test_a_record_has_exactly_one_kind():
    with pytest.raises(TypeError, match="one kind"):
        Chain("s").record()
    with pytest.raises(TypeError, match="one kind"):
        Chain("s").record(step_taken=pb.StepTaken(), server_fault=pb.ServerFault())


def test_a_chain_can_take_back_a_record_that_was_not_appended(tmp_path):
    chain = Chain("s")
    with LogWriter(tmp_path) as writer:
        writer.append(opening(chain))
        before = chain.sequence, chain.previous
        steps(chain, [1])
        chain.sequence, chain.previous = before
        writer.append(steps(chain, [1]))
    (episode,) = episodes(tmp_path)
    assert (episode.problem, episode.latest) == (None, 1)


# Writing


def test_what_is_appended_is_read_in_order_across_segments(tmp_path):
    chain = Chain("s")
    payloads = opening(chain) + steps(chain, range(1, 50))
    with LogWriter(tmp_path, segment_bytes=500) as writer:
        for payload in payloads:
            writer.append([payload])
    assert len(list(tmp_path.iterdir())) > 5
    assert all(path.stat().st_size <= 500 for path in tmp_path.iterdir())
    assert [item.event.SerializeToString() for item in read(tmp_path)] == payloads
    (episode,) = episodes(tmp_path)
    assert (episode.problem, episode.latest) == (None, 49)


def test_a_writer_that_is_closed_writes_no_more(tmp_path):
    writer = LogWriter(tmp_path, segment_bytes=1)
    writer.append(opening(Chain("s")))
    writer.close()
    writer.close()
    with pytest.raises(LogUnwritable, match="closed"):
        writer.append(opening(Chain("t")))
    assert not any(is_live(path) for path in tmp_path.iterdir())


def test_a_directory_that_cannot_be_made_is_unwritable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogUnwritable, match="the log cannot be written"):
        LogWriter(tmp_path / "file")


def test_half_a_record_of_a_living_writer_is_neither_read_nor_cut(tmp_path):
    chain = Chain("s")
    with LogWriter(tmp_path) as writer:
        writer.append(opening(chain))
        size = writer.path.stat().st_size
        (half,) = map(frames.encode, steps(chain, [1]))
        with writer.path.open("ab") as file:
            file.write(half[:30])
        assert is_live(writer.path)
        with LogWriter(tmp_path) as other:
            assert other.cut == []
        assert writer.path.stat().st_size == size + 30
        assert len(list(read(tmp_path))) == 2
        with writer.path.open("ab") as file:
            file.write(half[30:])
        assert len(list(read(tmp_path))) == 3
        assert len(list(read(writer.path))) == 3


def test_a_reader_sees_each_record_as_soon_as_it_is_appended(tmp_path):
    chain = Chain("s")
    with LogWriter(tmp_path) as writer:
        reader = read(tmp_path)
        writer.append(opening(chain))
        assert list(reader) == []  # a reader stays at the moment at which it began
        for number in range(1, 20):
            writer.append(steps(chain, [number]))
            (episode,) = episodes(tmp_path)
            assert (episode.problem, episode.latest) == (None, number)


def test_a_session_that_moves_to_an_older_writer_is_read_in_order(tmp_path):
    chain = Chain("s")
    with LogWriter(tmp_path) as older:
        with LogWriter(tmp_path) as newer:
            newer.append(opening(chain) + steps(chain, [1]))
        (records,) = [LogIndex(tmp_path).session("s")]
        resumed = Chain("s", records[-1].event.sequence + 1, records[-1].sha256)
        older.continue_after(records[-1].path)
        older.continue_after(records[-1].path)
        older.append(steps(resumed, [2]))
    assert len(list(tmp_path.iterdir())) == 3
    (episode,) = episodes(tmp_path)
    assert (episode.problem, episode.latest) == (None, 2)


def test_two_processes_write_one_log(tmp_path):
    code = """
        chain = Chain(sys.argv[2])
        with LogWriter(folder, segment_bytes=3000) as writer:
            start = pb.EpisodeStarted(env_id="e")
            writer.append([chain.record(chain.session_id + ".1", episode_started=start)])
            print("ready", flush=True)
            for number in range(1, 301):
                step = pb.StepTaken(step=number)
                writer.append([chain.record(chain.session_id + ".1", step_taken=step)])
                if number % 50 == 0:
                    writer.sync()
    """
    with child(code, tmp_path, "one") as one, child(code, tmp_path, "two") as two:
        assert [writer.stdout.readline() for writer in (one, two)] == ["ready\n"] * 2
        while one.poll() is None or two.poll() is None:
            assert all(episode.problem is None for episode in episodes(tmp_path))
    assert (one.returncode, two.returncode) == (0, 0)
    found = {episode.session_id: episode for episode in episodes(tmp_path)}
    assert {name: (e.problem, e.latest) for name, e in found.items()} == {
        "one": (None, 300),
        "two": (None, 300),
    }


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path):
    code = """
        chain = Chain("s")
        writer = LogWriter(folder)
        number = 0
        start = pb.EpisodeStarted(env_id="e")
        writer.append([chain.record("s.1", episode_started=start)])
        while True:
            number += 1
            writer.append([chain.record("s.1", step_taken=pb.StepTaken(step=number))])
            print(number, flush=True)
    """
    with child(code, tmp_path) as writer:
        lines = [writer.stdout.readline() for _ in range(200)]
        writer.send_signal(signal.SIGKILL)
        acknowledged = int([*lines, *writer.stdout][-1])
    assert writer.returncode == -signal.SIGKILL
    (episode,) = episodes(tmp_path)
    assert episode.problem is None
    assert episode.latest in (acknowledged, acknowledged + 1)


def test_a_full_disk_leaves_a_good_log_and_can_be_mended(tmp_path):
    code = """
        import errno, resource
        def limit(size):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        chain = Chain("s")
        writer = LogWriter(folder)
        writer.append([chain.record("s.1", episode_started=pb.EpisodeStarted(env_id="e"))])
        limit(5000)
        def two_steps(number):
            writer.append([
                chain.record("s.1", step_taken=pb.StepTaken(step=2 * number - 1)),
                chain.record("s.1", step_taken=pb.StepTaken(step=2 * number)),
            ])
        for number in range(1, 200):
            before = chain.sequence, chain.previous
            try:
                two_steps(number)
            except LogUnwritable as e:
                assert (e.errno, e.filename) == (errno.EFBIG, str(writer.path)), e
                print(number, writer.path.stat().st_size)
                limit(resource.RLIM_INFINITY)
                chain.sequence, chain.previous = before
                two_steps(number)
        writer.close()
    """
    with child(code, tmp_path) as writer:
        output = writer.stdout.read()
    assert writer.returncode == 0
    failed_at, size = map(int, output.split())
    assert 10 < failed_at < 100
    assert 4000 < size < 5000
    (episode,) = episodes(tmp_path)
    assert (episode.problem, episode.latest) == (None, 398)


# Reading


def test_what_is_no_log_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    for path, message in [
        (tmp_path / "missing", "found nothing"),
        (tmp_path / "empty", "a directory without .rgl files"),
        (tmp_path / "notes.txt", "expected a directory or a .rgl file"),
    ]:
        for reader in (read, episodes):
            with pytest.raises(NotALog, match=message):
                reader(path)


def test_an_episode_has_what_was_logged(tmp_path):
    chain = Chain("s")
    with LogWriter(tmp_path) as writer:
        writer.append(opening(chain) + steps(chain, [1, 2]))
        writer.append([chain.record("s.1", server_fault=pb.ServerFault(error="KeyError"))])
        writer.append([chain.record("s.1", episode_ended=pb.EpisodeEnded(reason=7))])
        writer.append([chain.record("s.1", agent_claim=pb.AgentClaim(claim_json='{"a":1}'))])
        writer.append([chain.record("s.2", episode_started=pb.EpisodeStarted(env_id="e"))])
    first, second = episodes(tmp_path)
    events = [item.event for item in read(tmp_path)]
    assert (first.episode_id, first.session_id, first.problem) == ("s.1", "s", None)
    assert first.started == events[1].episode_started
    assert first.start_time == events[1].time.ToNanoseconds()
    assert first.steps == [events[2].step_taken, events[3].step_taken]
    assert first.step_times == [event.time.ToNanoseconds() for event in events[2:4]]
    assert [fault.error for fault in first.faults] == ["KeyError"]
    assert [claim.claim_json for claim in first.claims] == ['{"a":1}']
    assert first.ended.reason == pb.END_REASON_ENV_ERROR
    assert (second.episode_id, second.ended, second.problem) == ("s.2", None, None)


def test_a_closed_episode_is_given_before_the_rest_is_read(tmp_path):
    a, b = Chain("a"), Chain("b")
    with LogWriter(tmp_path) as writer:
        writer.append(opening(a) + opening(b))
        writer.append([a.record(session_closed=pb.SessionClosed()), *steps(b, range(1, 5))])
    given_first = []
    items = (given_first.append(item) or item for item in read(tmp_path))
    assert next(group(items)).episode_id == "a.1"
    assert len(given_first) == 5


# The index


def test_the_index_finds_sessions_and_what_came_since(tmp_path):
    a, b = Chain("a"), Chain("b")
    with LogWriter(tmp_path, segment_bytes=400) as first, LogWriter(tmp_path) as second:
        for payload in opening(a, request_id="r") + steps(a, range(1, 6)):
            first.append([payload])
        index = LogIndex(tmp_path)
        assert [r.event.sequence for r in index.session("a")] == list(range(7))
        assert index.session("b") is None
        second.append(opening(b, request_id="r") + steps(b, [1]))
        first.append(steps(a, [6]))
        assert index.session("b") is None
        index.refresh()
        assert index.session("a") == [
            item for item in read(tmp_path) if item.event.session_id == "a"
        ]
        assert len(index.session("b")) == 3
        assert index.sessions_of("r") == ["a", "b"]
        assert index.sessions_of("") == index.sessions_of("other") == []


def test_the_index_waits_for_the_end_of_half_a_record(tmp_path):
    chain = Chain("s")
    whole = b"".join(map(frames.encode, opening(chain) + steps(chain, [1])))
    path = tmp_path / "00000001-live.rgl"
    index = LogIndex(tmp_path)
    for cut in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:cut])
        index.refresh()
        assert (index.session("s") or []) == list(read(path))
    path.write_bytes(whole)
    index.refresh()
    assert len(index.session("s")) == 3


def test_the_index_of_a_log_that_does_not_exist_is_empty(tmp_path):
    assert LogIndex(tmp_path / "missing").session("s") is None


def test_the_index_leaves_damaged_records_out(tmp_path):
    with LogWriter(tmp_path) as writer:
        writer.append(opening(Chain("s")))
    index = LogIndex(tmp_path)
    assert len(index.session("s")) == 2
    with writer.path.open("r+b") as file:
        file.seek(20)
        file.write(b"\0\0\0")
    assert [record.event.sequence for record in index.session("s")] == [1]
    assert [record.event.sequence for record in LogIndex(tmp_path).session("s")] == [1]


# Export

HARD = [
    '{"id":9007199254740993,"big":' + "9" * 400 + "}",
    '{"lone":"\\ud800 and \\udfff"}',
    '{"broken": ',
    'nul \x00, quote ", line \n\u2028, euro \u20ac, face \U0001f600',
    "",
]


def write_hard(folder, texts):
    """A log of one session whose agent wrote `texts`, and whose tools gave them back."""
    chain = Chain("s")
    with LogWriter(folder) as writer:
        writer.append(opening(chain))
        for number, text in enumerate(texts, start=1):
            observation = pb.Observation(json=canonical_json({"result": text}))
            step = call(number, text, observation=observation, reward=0.1 + 0.2)
            writer.append([chain.record("s.1", step_taken=step)])


def rows_of(path, out):
    count = write_parquet(path, out)
    with duckdb.connect() as connection:
        table = connection.read_parquet(str(out))
        assert table.columns == list(COLUMNS)
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]
    assert len(rows) == count
    return rows


def test_json_lines_lose_nothing(tmp_path):
    write_hard(tmp_path / "log", HARD)
    out = io.StringIO()
    exported = write_json_lines(tmp_path / "log", out)
    lines = out.getvalue().splitlines()
    assert (exported.lines, exported.damage) == (len(lines), [])
    assert [json_format.Parse(line, pb.EpisodeEvent()) for line in lines] == [
        item.event for item in read(tmp_path / "log")
    ]
    assert all(line.isascii() and line == canonical_json(json.loads(line)) for line in lines)
    assert json.loads(lines[1])["episode_started"]["seed"] == str(2**64 - 1)


def test_json_lines_report_what_cannot_be_read(tmp_path):
    write_hard(tmp_path, HARD)
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        file.seek(20)
        file.write(b"\0\0\0\0")
    exported = write_json_lines(tmp_path, io.StringIO())
    assert exported.lines == len(HARD) + 1
    assert [(damage.path, damage.offset) for damage in exported.damage] == [(path, 0)]


@given(st.lists(st.text(max_size=50), max_size=5))
@settings(deadline=None, max_examples=15)
def test_parquet_keeps_every_text_and_number(texts):
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        write_hard(log, HARD + texts)
        rows = rows_of(log, Path(folder) / "steps.parquet")
        assert sorted(path.name for path in Path(folder).iterdir()) == ["log", "steps.parquet"]
    assert [row["arguments_json"] for row in rows] == HARD + texts
    assert [json.loads(row["observation"])["result"] for row in rows] == HARD + texts
    assert {(row["seed"], row["reward"]) for row in rows} == {(2**64 - 1, 0.1 + 0.2)}


def test_parquet_has_a_row_for_each_step_of_any_kind(tmp_path):
    chain = Chain("s")
    value = space_pb2.Value(integer=2**60 + 1)
    actions = [
        pb.Action(text=pb.Text(text="t")),
        pb.Action(no_action=pb.NoAction(fault="refusal", text="no")),
        pb.Action(value=value),
        pb.Action(),
        pb.Action(final=pb.Final(answer="42")),
    ]
    rewards = [float("nan"), float("-inf"), -0.0, 5e-324, 1.0]
    fault = {"fault": space_pb2.Value(text="refusal")}
    with LogWriter(tmp_path / "log") as writer:
        writer.append(opening(chain))
        for number, (action, reward) in enumerate(zip(actions, rewards, strict=True), start=1):
            transition = pb.Transition(
                observation=pb.Observation(value=value),
                reward=reward,
                info=fault if number == 2 else {},
                state_hash=bytes([number]) * 32,
            )
            taken = pb.StepTaken(step=number, turn=1, action=action, transition=transition)
            writer.append([chain.record("s.1", step_taken=taken)])
        writer.append([chain.record("s.1", episode_ended=pb.EpisodeEnded(reason=6))])
    rows = rows_of(tmp_path / "log", tmp_path / "steps.parquet")
    number = '{"integer":"1152921504606846977"}'
    kinds = ["text", "no_action", "value", None, "final"]
    assert [row["action_kind"] for row in rows] == kinds
    assert [row["action_text"] for row in rows] == ["t", "no", number, None, "42"]
    assert [str(row["reward"]) for row in rows] == [str(reward) for reward in rewards]
    assert [row["fault"] for row in rows] == [None, "refusal", None, None, None]
    assert [row["end_reason"] for row in rows] == [None] * 4 + ["client_lost"]
    assert {row["observation"] for row in rows} == {number}
    assert [row["state_hash"] for row in rows] == [f"0{n}" * 32 for n in range(1, 6)]
    assert {row["labels"] for row in rows} == {'{"agent":"x"}'}
    assert {row["problem"] for row in rows} == {None}


def test_parquet_keeps_the_time_to_the_nanosecond(tmp_path):
    write_hard(tmp_path / "log", HARD)
    out = tmp_path / "steps.parquet"
    write_parquet(tmp_path / "log", out)
    with duckdb.connect() as connection:
        table = connection.read_parquet(str(out)).project("epoch_ns(time)")
        times = [nanos for (nanos,) in table.fetchall()]
    (episode,) = episodes(tmp_path / "log")
    assert times == episode.step_times


def test_parquet_names_the_problem_of_an_episode(tmp_path):
    chain = Chain("s")
    with LogWriter(tmp_path / "log") as writer:
        writer.append(opening(chain) + steps(chain, [1, 3]))
    rows = rows_of(tmp_path / "log", tmp_path / "steps.parquet")
    assert ["step 2: expected step 2, got step 3" in row["problem"] for row in rows] == [True] * 2


def test_parquet_of_a_log_without_steps_is_an_empty_table(tmp_path):
    LogWriter(tmp_path / "log").close()
    assert rows_of(tmp_path / "log", tmp_path / "steps.parquet") == []
