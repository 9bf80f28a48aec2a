"""What happened in an episode, for people and for other formats: turns, calls, state changes.

Steps and claims are those of the log. What a log does not hold comes from running the episode
again: the tools that there were, and what each step changed in the state. Whether the record is
true is not asked here: see `env_server.scoring.score`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from env_server import protocol
from env_server.arguments import BadJson, BrokenJson, canonical_json, parse_object
from env_server.env import AgentFault, Final, ToolEnv, ToolSpec
from env_server.episode import Episode
from env_server.log import LoggedEpisode, episodes
from env_server.log.export import observation_text, rows
from env_server.registry import Registry
from env_server.scoring import replay
from env_server.scoring.changes import Change, changes
from env_server.scoring.replay import Unreplayable
from railgym.codec import end_reason_from_proto


class Step(NamedTuple):
    """One step, as it stands in the log.

    Attributes:
        number: 1 for the first.
        turn: The model's turn, from 1; 0: not said.
        kind: "tool_call", "text", "final", "no_action" or "value".
        tool: Of a call.
        arguments: Of a call, as the agent wrote them: perhaps no JSON at all.
        text: Of a text, a final answer or no action; a value as JSON.
        observation: JSON.
        reward: As recorded; text where it is not finite.
        fault: Its code; empty: none.
        repaired: What was mended before the action ran; empty: nothing.
        time: Nanoseconds since 1970.
        changes: What it changed in the state, as the replay has it.
    """

    number: int
    turn: int
    kind: str
    tool: str
    arguments: str
    text: str
    observation: str
    reward: float | str
    fault: str
    repaired: str
    time: int
    changes: list[Change]


class Trace(NamedTuple):
    """What happened in an episode.

    Attributes:
        episode_id: "SESSION_ID.N".
        env_id: Empty where the record of its start is missing.
        env_version: Where the environment's code came from.
        task_id: Empty: no task.
        instruction: The goal in words; empty where the task is not known here.
        labels: Of the session.
        observation: What the reset showed: JSON.
        start_time: Nanoseconds since 1970.
        steps: In order.
        claims: What the client said of its agent, in order; what is no JSON object is one with
            its "text".
        faults: Errors of the environment, by class.
        end_reason: None: it has not ended.
        tools: That the agent had; empty where the episode cannot be run here.
        reference: The expected answer or state as the task's author asks for it, computed at the
            end; None where there is none, or where the episode cannot be run here.
        unseen: Why no state changes can be shown; empty: they can.
    """

    episode_id: str
    env_id: str
    env_version: str
    task_id: str
    instruction: str
    labels: dict[str, str]
    observation: str
    start_time: int
    steps: list[Step]
    claims: list[dict[str, Any]]
    faults: list[str]
    end_reason: str | None
    tools: list[ToolSpec]
    reference: Any
    unseen: str

    @property
    def answer(self) -> str | None:
        """The final answer, also one under the JSON protocol; None where there is none."""
        last = self.steps[-1] if self.steps else None
        if last is None or last.kind != "text":
            return last.text if last and last.kind == "final" else None
        try:
            action, _ = protocol.parse(last.text)
        except AgentFault:
            return None
        return action.answer if isinstance(action, Final) else None

    @property
    def turns(self) -> list[list[Step]]:
        """The steps by the model's turns; a step whose turn was not said is one of its own."""
        turns: list[list[Step]] = []
        for step in self.steps:
            if turns and step.turn and step.turn == turns[-1][-1].turn:
                turns[-1].append(step)
            else:
                turns.append([step])
        return turns


class _Again(NamedTuple):
    """What running an episode again shows."""

    tools: list[ToolSpec]
    changes: dict[int, list[Change]]
    reference: Any
    unseen: str


def traces(path: Path, registry: Registry) -> Iterator[Trace]:
    """Traces the episodes of a log as they are read.

    Raises:
        NotALog: There is nothing at the path, or something else than a log.
    """
    for logged in episodes(path):
        if logged.episode_id:
            yield trace(logged, registry)


def trace(logged: LoggedEpisode, registry: Registry) -> Trace:
    """Traces an episode. Never raises for what stands in a log."""
    again = _run_again(logged, registry)
    started = logged.started
    task = registry.tasks.get(started.task_id) if started else None
    known = task is not None and started is not None and task.sha256 == started.task_sha256
    return Trace(
        episode_id=logged.episode_id,
        env_id=started.env_id if started else "",
        env_version=started.env_version if started else "",
        task_id=started.task_id if started else "",
        instruction=task.instruction if task is not None and known else "",
        labels=dict(started.labels) if started else {},
        observation=observation_text(started.observation) if started else "",
        start_time=logged.start_time,
        steps=[_step(row, again.changes) for row in rows(logged)],
        claims=[_claim(claim.claim_json) for claim in logged.claims],
        faults=[fault.error for fault in logged.faults],
        end_reason=end_reason_from_proto(logged.ended.reason) if logged.ended else None,
        tools=again.tools,
        reference=again.reference,
        unseen=again.unseen,
    )


def _step(row: dict[str, Any], changed: dict[int, list[Change]]) -> Step:
    return Step(
        number=row["step"],
        turn=row["turn"] or 0,
        kind=row["action_kind"] or "",
        tool=row.get("tool", ""),
        arguments=row.get("arguments_json", ""),
        text=row.get("action_text", ""),
        observation=row["observation"],
        reward=row["reward"],
        fault=row["fault"] or "",
        repaired=row["repaired"] or "",
        time=row["time"],
        changes=changed.get(row["step"], []),
    )


def _claim(text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except (BadJson, BrokenJson):
        return {"text": text}


def _run_again(logged: LoggedEpisode, registry: Registry) -> _Again:
    if logged.started is None:
        return _Again([], {}, None, "the record of its start is missing")
    try:
        episode, entry, _ = replay.begin(logged.started, registry)
        tools = list(episode.tools)
        changed: dict[int, list[Change]] = {}
        state = _state(episode)
        for taken in logged.steps:
            before = episode.state_hash
            replay.follow(episode, entry, taken)
            if episode.state_hash != before:
                now = _state(episode)
                changed[taken.step] = changes(state, now)
                state = now
        return _Again(tools, changed, _reference(episode), "")
    except Unreplayable as e:
        return _Again([], {}, None, str(e))
    except Exception as e:
        # As in the scorer: an environment may raise anything, and other episodes want their trace.
        return _Again([], {}, None, f"the environment raised {type(e).__name__}")


def _state(episode: Episode) -> Any:
    """The state as a JSON value that no later step can change; None for a plain environment."""
    env = episode.env
    return json.loads(canonical_json(env.state())) if isinstance(env, ToolEnv) else None


def _reference(episode: Episode) -> Any:
    task, env = episode.spec.task, episode.env
    if task is None or task.expected is None or not isinstance(env, ToolEnv):
        return None
    return env.reference(task.expected)
