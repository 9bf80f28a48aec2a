"""Wire messages <-> the server's plain types; the only module of the server that knows both.

Values, spaces, actions and transitions are carried by `railgym.codec`, the client's own; what is
added here are episodes, tasks and environments.
"""

from __future__ import annotations

import json
from typing import Any

from env_server.arguments import BadJson, BrokenJson, canonical_json, parse_object
from env_server.env import Action, Plain, StatefulEnv, ToolEnv
from env_server.episode import Episode, EpisodeSpec, Reply, Rule
from env_server.errors import BadAction, BadOptions, shown
from env_server.registry import EnvEntry
from env_server.shaping import tools_for
from env_server.tasks import Task
from railgym import codec
from railgym._version import __version__
from railgym.spaces import AS_THEY_ARE, ToolShaping, ToolSpace
from railgym.v1 import env_service_pb2, episode_pb2, space_pb2


def rule_to_proto(rule: Rule) -> episode_pb2.ArgumentRule.ValueType:
    """How strictly arguments are read."""
    return episode_pb2.ArgumentRule.Value(f"ARGUMENT_RULE_{rule.upper()}")


def rule_from_proto(rule: episode_pb2.ArgumentRule.ValueType) -> Rule:
    """How strictly arguments are read; strict where it is not said."""
    return "lenient" if rule == episode_pb2.ARGUMENT_RULE_LENIENT else "strict"


def shaping_to_proto(shaping: ToolShaping) -> episode_pb2.ToolShaping | None:
    """How tools are shown; None where they are shown as they are."""
    return None if shaping == AS_THEY_ARE else episode_pb2.ToolShaping(**shaping._asdict())


def shaping_from_proto(message: episode_pb2.ToolShaping) -> ToolShaping:
    """How tools are shown; an unset message says that they are shown as they are."""
    if not message.distractors and not message.renamed:
        return AS_THEY_ARE  # from whatever seed
    return ToolShaping(message.distractors, message.renamed, message.seed)


def tool_space(entry: EnvEntry, task: Task | None, shaping: ToolShaping) -> space_pb2.Space:
    """The action space of an environment with tools, as they are shown."""
    allowed = () if task is None else tuple(task.allowed_tools)
    return codec.space_to_proto(ToolSpace(tools_for(entry.env_class, allowed, shaping)))


def action_from_proto(action: episode_pb2.Action, entry: EnvEntry, space: Any) -> Action:
    """Reads an action.

    Args:
        action: As it came.
        entry: The environment that is to take it.
        space: Its action space, which types a plain value.

    Raises:
        BadAction: It is empty, of a kind that the environment does not take, or malformed.
    """
    kind = action.WhichOneof("kind")
    if kind is None or (kind == "value") != entry.is_plain:
        expected = "a value" if entry.is_plain else "a tool call, text, final answer or no-action"
        got = kind or "nothing"
        raise BadAction(f"{entry.env_id} takes {expected}, got {got}", expected=expected, got=got)
    try:
        read = codec.action_from_proto(action, space)
        if isinstance(read, Plain):
            space.contains(read.value)  # raises for some arrays of a wrong shape
        return read
    except (ValueError, TypeError) as e:
        expected = shown(str(space))
        raise BadAction(f"expected a value of {expected}: {e}", expected=expected, got=e) from None


def reply_to_proto(reply: Reply, env: StatefulEnv) -> episode_pb2.Transition:
    """Writes the outcome of a step of an environment."""
    message = codec.transition_to_proto(reply.transition, _plain_space(env))
    message.state_hash = reply.state_hash
    if reply.end is not None:
        message.end_reason = codec.end_reason_to_proto(reply.end)
    return message


def start_observation(episode: Episode) -> episode_pb2.Observation:
    """Writes the first observation of an episode."""
    return codec.observation_to_proto(episode.start.observation, _plain_space(episode.env))


def options_from_json(text: str) -> dict[str, Any]:
    """Reads reset options; empty text is none.

    Raises:
        BadOptions: The text is no JSON object, or breaks the canonical rule.
    """
    try:
        return parse_object(text) if text else {}
    except (BadJson, BrokenJson) as e:
        got = shown(text)
        raise BadOptions(str(e), option="", expected="a JSON object", got=got) from None


def task_info(task: Task) -> episode_pb2.TaskInfo:
    """What a client may know of a task; tags with a colon are notes for the scorer."""
    return episode_pb2.TaskInfo(
        task_id=task.task_id,
        env_id=task.env_id,
        level=task.level,
        instruction=task.instruction,
        max_steps=task.max_steps,
        allowed_tools=task.allowed_tools,
        tags=[tag for tag in task.tags if ":" not in tag],
        sha256=task.sha256,
    )


def env_info(entry: EnvEntry, task_count: int, task: Task | None = None) -> env_service_pb2.EnvInfo:
    """What a client may know of an environment, its tools limited to those of the task."""
    env = entry.make()
    schema = entry.options_schema
    shown = tool_space(entry, task, AS_THEY_ARE)
    space = codec.space_to_proto(env.action_space) if entry.is_plain else shown
    return env_service_pb2.EnvInfo(
        env_id=entry.env_id,
        env_version=entry.version,
        description=entry.description,
        action_space=space,
        observation_space=codec.space_to_proto(env.observation_space),
        options_schema_json="" if schema is None else canonical_json(schema),
        task_count=task_count,
        render_modes=entry.env_class.metadata.get("render_modes") or [],
    )


def started_event(
    episode: Episode, entry: EnvEntry, labels: dict[str, str]
) -> episode_pb2.EpisodeStarted:
    """Writes the record that an episode begins with."""
    spec, start = episode.spec, episode.start
    message = spec_to_started(spec)
    message.env_version = entry.version
    message.tools_sha256 = episode.tools_sha256
    message.server_version = __version__
    message.labels.update(labels)
    message.observation.CopyFrom(start_observation(episode))
    message.state_hash = start.state_hash
    for key, value in codec.info_to_proto(start.info).items():
        message.info[key].CopyFrom(value)
    return message


def spec_to_started(spec: EpisodeSpec) -> episode_pb2.EpisodeStarted:
    """Writes what an episode depends on, as the record that it begins with holds it."""
    message = episode_pb2.EpisodeStarted(
        env_id=spec.env_id,
        task_id="" if spec.task is None else spec.task.task_id,
        task_sha256="" if spec.task is None else spec.task.sha256,
        options_json=canonical_json(spec.options),
        argument_rule=rule_to_proto(spec.rule),
        tool_shaping=shaping_to_proto(spec.shaping),
    )
    if spec.generator_state is not None:
        message.generator_state_json = canonical_json(spec.generator_state)
    elif spec.seed is not None:
        message.seed = spec.seed
    return message


def spec_from_started(started: episode_pb2.EpisodeStarted, task: Task | None) -> EpisodeSpec:
    """Reads from its first record what an episode depends on.

    Raises:
        BadJson: The options or the generator's state break the canonical rule.
        BrokenJson: They are no JSON.
    """
    generator = started.WhichOneof("generator")
    return EpisodeSpec(
        env_id=started.env_id,
        task=task,
        options=parse_object(started.options_json or "{}"),
        seed=started.seed if generator == "seed" else None,
        generator_state=(
            json.loads(started.generator_state_json)
            if generator == "generator_state_json"
            else None
        ),
        rule=rule_from_proto(started.argument_rule),
        shaping=shaping_from_proto(started.tool_shaping),
    )


def _plain_space(env: StatefulEnv) -> Any:
    """The space that types a plain environment's observations; None for JSON text."""
    return None if isinstance(env, ToolEnv) else env.observation_space
