"""The episode: the only code that advances an environment, live and in replay.

An episode is a value: environment, task, options, generator and the list of actions. `Episode`
keeps the order of its steps, takes each exactly once, holds it on the task's rails, and judges
its end. It knows no wire, no session, no clock and no log.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from gymnasium.utils.env_checker import data_equivalence

from env_server import protocol
from env_server.arguments import canonical_json
from env_server.env import (
    Action,
    AgentFault,
    Call,
    FaultCode,
    Final,
    Plain,
    StatefulEnv,
    ToolCall,
    ToolEnv,
    ToolSpec,
    Transition,
    fault,
)
from env_server.envs.hosted import set_generator_state
from env_server.errors import BadOptions, EpisodeOver, StepOutOfOrder, bad_action, cut, shown
from env_server.shaping import Toolbox, toolbox, tools_for, tools_sha256
from env_server.tasks import Task
from env_server.validators import CallRecord, Ending, judge
from railgym.spaces import AS_THEY_ARE, ToolShaping

End: TypeAlias = Literal["final", "goal", "max_steps"]
Rule: TypeAlias = Literal["strict", "lenient"]


class EpisodeSpec(NamedTuple):
    """Everything that an episode depends on, besides its actions.

    Attributes:
        env_id: The environment.
        task: The task, or None.
        options: Of the reset. With a task, the task's own: they are a part of it.
        seed: Sets the environment's generator.
        generator_state: Where `seed` is None: where the generator stood.
        rule: How strictly arguments are read.
        shaping: How tools are shown. Actions name them as they are shown, `Episode.calls` as they
            are.
    """

    env_id: str
    task: Task | None = None
    options: dict[str, Any] = {}  # noqa: RUF012
    seed: int | None = 0
    generator_state: dict[str, Any] | None = None
    rule: Rule = "strict"
    shaping: ToolShaping = AS_THEY_ARE


class Start(NamedTuple):
    """What a reset gives: Gymnasium's two, and SHA-256 of the state (32 bytes)."""

    observation: Any
    info: dict[str, Any]
    state_hash: bytes


class Reply(NamedTuple):
    """What a step gives: Gymnasium's five, SHA-256 of the state (32 bytes), and why it ended."""

    transition: Transition
    state_hash: bytes
    end: End | None


class Episode:
    """Applies actions to one environment, in order, each exactly once.

    Attributes:
        spec: What the episode depends on.
        env: The environment that it drives.
        start: What the reset gave.
        latest: Steps taken.
        end: Why it ended, or None.
        actions: Every accepted action, in order.
        calls: Every call to a tool, in order.
        verdict: By validator, whether it held at the end; None before, without a task, and where
            the end is none to be judged: a refusal, or the limit of steps.
    """

    def __init__(self, spec: EpisodeSpec, env: StatefulEnv) -> None:
        """Resets an environment.

        Raises:
            BadOptions: The environment does not take the options, or they are not the task's.
        """
        if spec.task is not None:
            _check_options(spec.task, spec.options)
        self.spec = spec
        self.env = env
        if spec.generator_state is not None:
            set_generator_state(env, spec.generator_state)
        observation, info = env.reset(seed=spec.seed, options=spec.options)
        self.start = Start(observation, info, env.state_hash())
        self.latest = 0
        self.end: End | None = None
        self.actions: list[Action] = []
        self.calls: list[CallRecord] = []
        self.verdict: dict[str, bool] | None = None
        self._answer: str | None = None
        self._last: Reply | None = None

    @property
    def state_hash(self) -> bytes:
        """SHA-256 of the state after the latest step (32 bytes)."""
        return self.start.state_hash if self._last is None else self._last.state_hash

    @property
    def truncated(self) -> bool:
        """Whether the latest transition cut the episode off."""
        return self._last is not None and self._last.transition.truncated

    @cached_property
    def tools(self) -> list[ToolSpec]:
        """The tools that are shown: those that the task allows, and distractors."""
        return tools_for(type(self.env), self._allows, self.spec.shaping)

    @property
    def tools_sha256(self) -> str:
        """Digest of the tools' names, descriptions and schemas (hex); empty without tools."""
        return tools_sha256(type(self.env), self._allows, self.spec.shaping)

    @property
    def _allows(self) -> tuple[str, ...]:
        return () if self.spec.task is None else tuple(self.spec.task.allowed_tools)

    @cached_property
    def _box(self) -> Toolbox:
        return toolbox(type(self.env), self.spec.shaping)

    @cached_property
    def _allowed(self) -> dict[str, ToolSpec]:
        return {tool.name: tool for tool in self.tools}

    def step(self, number: int, action: Action) -> Reply:
        """Applies an action, or repeats the reply to the latest one.

        Args:
            number: 1 for the first step.
            action: The agent's action.

        Raises:
            StepOutOfOrder: `number` is neither the latest step nor the next, or repeats the
                latest with another action.
            EpisodeOver: The latest transition ended the episode.
            BadAction: The environment does not take this kind of action, or this value.
        """
        if self._last is not None and number == self.latest:
            if same_action(action, self.actions[-1]):
                return self._last
            raise StepOutOfOrder(
                f"step {number} was taken with another action; the next is {number + 1}",
                expected=number + 1,
                got=number,
            )
        if self.end is not None:
            raise EpisodeOver(
                f"the episode ended at step {self.latest}: {self.end}; reset to begin another",
                step=self.latest,
                reason=self.end,
            )
        if number != self.latest + 1:
            raise StepOutOfOrder(
                f"expected step {self.latest + 1}, got {number}",
                expected=self.latest + 1,
                got=number,
            )
        return self._take(action)

    def _take(self, action: Action) -> Reply:
        if isinstance(self.env, ToolEnv):
            transition = self._apply(self.env, action)
        else:
            transition = self._apply_plain(action)
        number = self.latest + 1
        limit = self._max_steps
        if not transition.terminated and limit is not None and number >= limit:
            transition = transition._replace(truncated=True)
        end = self._end_of(transition)
        if self.spec.task is not None:
            earned = transition.terminated and transition.info.get("fault") != "refusal"
            reward = self._judge(self.spec.task) if earned else 0.0
            transition = transition._replace(reward=reward)
        reply = Reply(transition, self.env.state_hash(), end)
        self.latest, self.end, self._last = number, end, reply
        self.actions.append(action)
        return reply

    def _apply(self, env: ToolEnv, action: Action) -> Transition:
        try:
            taken, mended = protocol.read(action)
        except AgentFault as e:
            return fault(e.code, str(e))._replace(terminated=e.code == "refusal")
        if isinstance(taken, Final):
            self._answer = taken.answer
            return _marked(env.step(taken), mended)
        return _marked(self._call(env, taken), mended)

    def _call(self, env: ToolEnv, action: ToolCall) -> Transition:
        number, box = self.latest + 1, self._box
        name = box.origin(action.name)
        try:
            call = self._check(box, action)
        except AgentFault as e:
            self.calls.append(CallRecord(number, name, None, e.code))
            return fault(e.code, str(e))
        transition = env.run(call, box.reworded)
        code = transition.info.get("fault")
        self.calls.append(CallRecord(number, name, call.arguments, code))
        return transition

    def _check(self, box: Toolbox, action: ToolCall) -> Call:
        if action.name not in self._allowed:
            code: FaultCode = "not_allowed" if action.name in box.tools else "unknown_tool"
            why = "is not allowed here" if code == "not_allowed" else "does not exist"
            names = ", ".join(self._allowed)
            raise AgentFault(code, f"{shown(action.name)} {why}; there are {names}")
        return box.tools[action.name].read(action.arguments_json, self.spec.rule)

    def _apply_plain(self, action: Action) -> Transition:
        if not isinstance(action, Plain):
            raise bad_action("a value of the action space", action)
        if not self.env.action_space.contains(action.value):
            raise bad_action(f"a value of {self.env.action_space}", action.value)
        return self.env.step(action.value)

    @cached_property
    def _max_steps(self) -> int | None:
        if self.spec.task is not None:
            return self.spec.task.max_steps
        return self.env.MAX_STEPS if isinstance(self.env, ToolEnv) else None

    def _end_of(self, transition: Transition) -> End | None:
        if transition.terminated:
            refused = transition.info.get("fault") == "refusal"
            return "final" if refused or self._answer is not None else "goal"
        return "max_steps" if transition.truncated else None

    def _judge(self, task: Task) -> float:
        self.verdict = judge(task.validators, task.required_fields, self._ending(task))
        return float(all(self.verdict.values()))

    def _ending(self, task: Task) -> Ending:
        env = self.env
        assert isinstance(env, ToolEnv)
        expected = None if task.expected is None else env.reference(task.expected)
        return Ending(self._answer, env.state, self.calls, expected)


def same_action(one: Action, other: Action) -> bool:
    """Whether two actions are the same: of one kind, and equal in value, type and shape."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Plain) and isinstance(other, Plain):
        return bool(data_equivalence(one.value, other.value, exact=True))
    return one == other


def _check_options(task: Task, options: Mapping[str, Any]) -> None:
    names = [*options, *task.options]
    name = next((n for n in names if n not in options or options[n] != task.options.get(n)), None)
    if name is not None:
        got = cut(canonical_json(options.get(name)))
        expected = f"the options as task {task.task_id} sets them"
        message = f"option {shown(name)}: expected {expected}; got {got}"
        raise BadOptions(message, option=name[:200], expected=expected, got=got)


def _marked(transition: Transition, mended: str | None) -> Transition:
    if mended is None:
        return transition
    repaired = ",".join(filter(None, (mended, transition.info.get("repaired"))))
    return transition._replace(info={**transition.info, "repaired": repaired})
