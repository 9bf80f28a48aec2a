"""Plays episodes in process and logs them as a server does; and rewrites logs, as a cheat would."""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from env_server import codec
from env_server.env import Action, Final, ToolCall
from env_server.episode import Episode, EpisodeSpec
from env_server.gold import play_gold
from env_server.log import Chain, LogWriter, read
from env_server.registry import Registry
from env_server.tasks import Task
from railgym import codec as wire
from railgym.v1 import episode_pb2 as pb

NUMBERS = count(1)


class Play(NamedTuple):
    """An episode to be played; `end` says how it ends where it does not by itself.

    `turns` has the turn of each step, `claims` what was claimed: each before its turn's first step.
    """

    task: Task | None
    actions: Sequence[Action]
    labels: dict[str, str] = {}  # noqa: RUF012
    end: str | None = None
    env_id: str = ""
    options: dict[str, Any] | None = None
    fault: str = ""
    turns: Sequence[int] = ()
    claims: Sequence[dict[str, Any]] = ()


def gold(task: Task, registry: Registry) -> list[Action]:
    return play_gold(task, registry)[0].actions


def calls(*names: str, final: str | None = "") -> list[Action]:
    """Calls without arguments, and an answer."""
    return [*(ToolCall(name) for name in names), *([] if final is None else [Final(final)])]


def letters(text: str, final: str | None = "") -> list[Action]:
    typed = [ToolCall("type_letter", f'{{"letter": "{letter}"}}') for letter in text]
    return [*typed, *([] if final is None else [Final(final)])]


def make_task(**changes: Any) -> Task:
    """A Typewriter task "dog" that the final answer ends, changed as wanted."""
    row = {
        "task_id": "test/dog",
        "env_id": "railgym/Typewriter-v1",
        "level": "L2",
        "instruction": "Type it.",
        "options": {"target": "dog", "finish": "final"},
        "max_steps": 8,
        "expected": "target",
        "validators": [{"name": "state_equals", "field": "paper"}],
        "gold": [{"tool": "type_letter", "arguments": {"letter": c}} for c in "dog"]
        + [{"final": ""}],
    }
    return Task.model_validate({**row, **changes})


def write_log(path: Path, plays: Iterable[Play], registry: Registry) -> list[str]:
    """Plays each in a session of its own.

    Returns:
        The ids of the episodes.
    """
    ids = []
    with LogWriter(path) as log:
        for play in plays:
            chain = Chain(f"session{next(NUMBERS):06}")
            log.append(list(_records(chain, play, registry)))
            ids.append(f"{chain.session_id}.1")
    return ids


def _records(chain: Chain, play: Play, registry: Registry) -> Iterable[bytes]:
    env_id = play.task.env_id if play.task else play.env_id
    entry = registry.env(env_id)
    options = {**(play.task.options if play.task else {}), **(play.options or {})}
    episode = Episode(EpisodeSpec(env_id, play.task, options, seed=7), entry.make())
    name = f"{chain.session_id}.1"
    yield chain.record(session_opened=pb.SessionOpened(env_id=env_id, labels=play.labels))
    yield chain.record(name, episode_started=codec.started_event(episode, entry, play.labels))
    claims = list(play.claims)
    for number, action in enumerate(play.actions, start=1):
        turn = play.turns[number - 1] if play.turns else 0
        while claims and claims[0].get("turn", 0) <= turn:
            yield chain.record(name, agent_claim=_claim(claims.pop(0)))
        reply = episode.step(number, action)
        space = None if not entry.is_plain else episode.env.action_space
        taken = pb.StepTaken(
            step=number,
            turn=turn,
            action=wire.action_to_proto(action, space),
            transition=codec.reply_to_proto(reply, episode.env),
        )
        yield chain.record(name, step_taken=taken)
    for claim in claims:
        yield chain.record(name, agent_claim=_claim(claim))
    if play.fault:
        yield chain.record(name, server_fault=pb.ServerFault(error=play.fault))
    if end := episode.end or play.end:
        reason = wire.end_reason_to_proto(end)
        ended = pb.EpisodeEnded(reason=reason, state_hash=episode.state_hash)
        yield chain.record(name, episode_ended=ended)
    yield chain.record(session_closed=pb.SessionClosed())


def _claim(claim: dict[str, Any]) -> pb.AgentClaim:
    return pb.AgentClaim(claim_json=json.dumps(claim))


def rewrite(
    path: Path, change: Callable[[pb.EpisodeEvent], Iterable[pb.EpisodeEvent]], into: Path
) -> Path:
    """Writes a log anew with other events, and with numbers, hashes and checksums that fit."""
    chains: dict[str, Chain] = {}
    with LogWriter(into) as log:
        for record in read(path):
            for event in change(record.event):
                chain = chains.setdefault(event.session_id, Chain(event.session_id))
                kind = event.WhichOneof("kind")
                payload = chain.record(event.episode_id, **{kind: getattr(event, kind)})
                log.append([payload])
    return into
