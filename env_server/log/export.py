"""Writes a log in other formats: JSON lines, one for each record, and Parquet, one row a step.

A JSON line is an `EpisodeEvent` by protobuf's own JSON mapping, in canonical form (sorted keys,
ASCII, no spaces): field names as in the proto, 64-bit integers as decimal strings, bytes in
base64, times in RFC 3339. So nothing is rounded, and any protobuf library reads a line back.
Fields that this version does not know are not in it. What is JSON in the log (arguments,
observations) stays the text that it is.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import duckdb
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from env_server.arguments import canonical_json
from env_server.log.episodes import episodes
from env_server.log.frames import Damage
from env_server.log.logged import LoggedEpisode
from env_server.log.reader import read
from railgym.v1 import episode_pb2 as pb

COLUMNS = {
    "episode_id": "VARCHAR",
    "session_id": "VARCHAR",
    "env_id": "VARCHAR",
    "task_id": "VARCHAR",
    "labels": "VARCHAR",  # JSON object
    "seed": "UBIGINT",  # null: the generator went on
    "step": "UINTEGER",
    "turn": "UINTEGER",
    "action_kind": "VARCHAR",  # tool_call, text, final, no_action or value
    "tool": "VARCHAR",
    "arguments_json": "VARCHAR",  # as the agent wrote it: perhaps no JSON at all
    "action_text": "VARCHAR",  # of a text, a final answer or no action; a value as JSON
    "observation": "VARCHAR",  # JSON
    "reward": "DOUBLE",
    "terminated": "BOOLEAN",
    "truncated": "BOOLEAN",
    "fault": "VARCHAR",  # null: none
    "repaired": "VARCHAR",  # what was mended before the action ran; null: nothing
    "end_reason": "VARCHAR",  # on the last step of an episode that has ended
    "state_hash": "VARCHAR",  # hexadecimal
    "time": "BIGINT",  # nanoseconds since 1970; TIMESTAMP_NS (UTC) in the file
    "problem": "VARCHAR",  # what is wrong with the episode's records; null: nothing
}
"""The columns of the Parquet file, in order, with their DuckDB types."""


class Exported(NamedTuple):
    """What came of an export to JSON lines.

    Attributes:
        lines: How many were written.
        damage: What could not be read, and so is not among them.
    """

    lines: int
    damage: list[Damage]


def write_json_lines(path: Path, out: TextIO, episode_id: str = "") -> Exported:
    """Writes records of a log, in the order of the log.

    Args:
        path: The log.
        out: Where to.
        episode_id: Only those of this episode; empty: all.

    Raises:
        NotALog: There is no log at `path`.
    """
    lines, damage = 0, []
    for item in read(path):
        if isinstance(item, Damage):
            damage.append(item)
        elif episode_id in ("", item.event.episode_id):
            out.write(_json(item.event) + "\n")
            lines += 1
    return Exported(lines, damage)


def write_parquet(path: Path, out: Path) -> int:
    """Writes every step of a log, episode by episode.

    Args:
        path: The log.
        out: The file, replaced where it exists. While it is written, about 600 bytes for each
            step are needed beside it.

    Returns:
        How many rows were written.

    Raises:
        NotALog: There is no log at `path`.
    """
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=".railgym-") as scratch:
        lines, table = Path(scratch) / "steps.jsonl", Path(scratch) / "steps.parquet"
        count, longest = _write_rows(lines, episodes(path))
        with duckdb.connect(config={"threads": 1, "async_threads": 0}) as connection:
            connection.read_json(
                str(lines),
                format="newline_delimited",
                columns=COLUMNS,
                maximum_object_size=longest,
            ).project("* REPLACE (make_timestamp_ns(time) AS time)").write_parquet(
                str(table), compression="zstd"
            )
        table.replace(out)
    return count


def _write_rows(lines: Path, logged: Iterable[LoggedEpisode]) -> tuple[int, int]:
    """Writes the rows as JSON lines; returns how many, and the characters of the longest."""
    count, longest = 0, 1
    with lines.open("w", encoding="ascii") as file:
        for episode in logged:
            for row in rows(episode):
                line = canonical_json(row) + "\n"
                file.write(line)
                count, longest = count + 1, max(longest, len(line))
    return count, longest


def rows(episode: LoggedEpisode) -> Iterator[dict[str, Any]]:
    """The steps of an episode as rows of the Parquet file; a column that is null may be absent."""
    started, problem = episode.started, episode.problem
    of_episode: dict[str, Any] = {
        "episode_id": episode.episode_id,
        "session_id": episode.session_id,
        "problem": f"step {problem.step}: {problem.reason} ({problem.place})" if problem else None,
    }
    if started:
        of_episode["env_id"] = started.env_id
        of_episode["task_id"] = started.task_id or None
        of_episode["labels"] = canonical_json(dict(started.labels))
        of_episode["seed"] = started.seed if started.HasField("seed") else None
    ended = episode.ended.reason if episode.ended else pb.END_REASON_UNSPECIFIED
    for taken, nanos in zip(episode.steps, episode.step_times, strict=True):
        reason = ended if taken is episode.steps[-1] else pb.END_REASON_UNSPECIFIED
        yield {**of_episode, **_action(taken.action), **_step(taken, reason), "time": nanos}


def observation_text(seen: pb.Observation) -> str:
    """An observation as JSON: as the agent saw it, or a value by protobuf's JSON mapping."""
    return seen.json if seen.HasField("json") else _json(seen.value)


def _step(taken: pb.StepTaken, ended: pb.EndReason.ValueType) -> dict[str, Any]:
    transition = taken.transition
    return {
        "step": taken.step,
        "turn": taken.turn or None,
        "observation": observation_text(transition.observation),
        "reward": transition.reward if math.isfinite(transition.reward) else str(transition.reward),
        "terminated": transition.terminated,
        "truncated": transition.truncated,
        "fault": _note(transition, "fault"),
        "repaired": _note(transition, "repaired"),
        "end_reason": _end(transition.end_reason or ended),
        "state_hash": transition.state_hash.hex(),
    }


def _note(transition: pb.Transition, key: str) -> str | None:
    return transition.info[key].text if key in transition.info else None


def _action(action: pb.Action) -> dict[str, Any]:
    kind = action.WhichOneof("kind")
    columns: dict[str, Any] = {"action_kind": kind}
    match kind:
        case "tool_call":
            columns["tool"] = action.tool_call.name
            columns["arguments_json"] = action.tool_call.arguments_json
        case "text":
            columns["action_text"] = action.text.text
        case "final":
            columns["action_text"] = action.final.answer
        case "no_action":
            columns["action_text"] = action.no_action.text
        case "value":
            columns["action_text"] = _json(action.value)
    return columns


def _end(reason: pb.EndReason.ValueType) -> str | None:
    """As in reports: "max_steps" for END_REASON_MAX_STEPS."""
    if reason == pb.END_REASON_UNSPECIFIED:
        return None
    if reason not in pb.EndReason.values():
        return str(reason)  # of a newer version
    return pb.EndReason.Name(reason).removeprefix("END_REASON_").lower()


def _json(message: Message) -> str:
    return canonical_json(MessageToDict(message, preserving_proto_field_name=True))
