"""A session: one live environment on a server, held for this client.

It numbers its own episodes and steps, so that every call may be sent again without being done
twice. It is for one thread at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from railgym import actions
from railgym.actions import Action, Final, NoAction, Plain, Text, ToolCall, Transition
from railgym.codec import (
    action_to_proto,
    end_reason_from_proto,
    end_reason_to_proto,
    info_from_proto,
    observation_from_proto,
    transition_from_proto,
    value_from_proto,
)
from railgym.errors import EnvError, StepTimedOut, Unavailable
from railgym.records import EnvInfo, TaskInfo
from railgym.route import Route
from railgym.v1 import env_service_pb2 as pb

MAX_SEED = 2**64 - 1


class Session:
    """One live environment. Use as a context manager: leaving it closes the session.

    After a `DeadlineExceeded` or `Unavailable` the same call may be made again: if the server has
    already done it, it answers with what it recorded. `resume` of the client goes on with a
    session in another process.

    Attributes:
        id: Gives access to the session; do not publish it while the session is open.
        env: The environment.
        task: The task, or None.
        lease_seconds: Of idleness, until the server ends the session.
        agent_token: Lets its bearer step, render and close this session, and nothing else; empty
            after `Client.resume`.
        episode: Number of the latest episode; 0: none yet.
        steps: Steps taken in it.
        seed: The seed that the latest episode began with; None where the generator went on.
        state_hash: SHA-256 of the state after the latest call (32 bytes).
        end_reason: Why the latest episode ended, for instance "final"; None: it has not.
    """

    def __init__(
        self,
        route: Route,
        session_id: str,
        env: EnvInfo,
        task: TaskInfo | None,
        lease_seconds: float,
        agent_token: str = "",
    ) -> None:
        """Takes over an open session that awaits its reset; see `Client.session`."""
        self._route = route
        self._closed = False
        self.id = session_id
        self.env = env
        self.task = task
        self.lease_seconds = lease_seconds
        self.agent_token = agent_token
        self.episode = 0
        self.steps = 0
        self.seed: int | None = None
        self.state_hash = b""
        self.end_reason: str | None = None

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins the next episode; one that runs ends as "client_closed".

        Args:
            seed: 0 to 2**64 - 1. None: the first episode draws one, a later one goes on with the
                generator.
            options: JSON values by name. With a task, none: they are a part of it.

        Returns:
            The first observation, and an info.

        Raises:
            BadOptions: An option is unknown, or its value is wrong.
            RailgymError: See `railgym.errors`.
            ValueError: The seed is out of bounds, or an option is NaN or infinite.
        """
        if seed is not None and not 0 <= seed <= MAX_SEED:
            raise ValueError(f"expected a seed from 0 to 2**64 - 1, got {seed}")
        request = pb.ResetRequest(
            session_id=self.id,
            episode=self.episode + 1,
            seed=seed,
            options_json=json.dumps(dict(options), allow_nan=False) if options else "",
        )
        reply = self._route.ask(lambda envs: envs.Reset, request)
        self.episode = reply.episode
        self.steps = 0
        self.seed = reply.seed if reply.HasField("seed") else None
        self.state_hash = reply.state_hash
        self.end_reason = None
        observation = observation_from_proto(reply.observation, self.env.observation_space)
        return observation, info_from_proto(reply.info)

    def step(self, action: Any, *, turn: int = 0) -> Transition:
        """Takes the next step.

        Args:
            action: An action of `railgym`, or a value of a plain environment's action space.
            turn: The model's turn that held the action, from 1; 0: not said.

        Raises:
            EpisodeOver: The latest transition ended the episode.
            BadAction: The environment does not take this kind of action, or this value.
            RailgymError: See `railgym.errors`.
        """
        request = pb.StepRequest(
            session_id=self.id,
            episode=self.episode,
            step=self.steps + 1,
            action=action_to_proto(as_action(action), self.env.action_space),
            turn=turn,
        )
        try:
            reply = self._route.ask(lambda envs: envs.Step, request).transition
        except (EnvError, StepTimedOut):
            self.end_reason = "env_error"
            raise
        self.steps += 1
        self.state_hash = reply.state_hash
        self.end_reason = end_reason_from_proto(reply.end_reason)
        return transition_from_proto(reply, self.env.observation_space)

    def call(self, name: str, /, **arguments: Any) -> Transition:
        """Calls a tool with Python values for arguments."""
        return self.step(actions.call(name, **arguments))

    def call_json(self, name: str, arguments_json: str, *, turn: int = 0) -> Transition:
        """Calls a tool with the model's own argument text, unparsed."""
        return self.step(ToolCall(name, arguments_json), turn=turn)

    def text(self, raw: str, *, turn: int = 0) -> Transition:
        """Gives the raw answer of a model without tool calling; the server parses it."""
        return self.step(Text(raw), turn=turn)

    def final(self, answer: str = "", *, turn: int = 0) -> Transition:
        """Gives the agent's answer, which ends the episode."""
        return self.step(Final(answer), turn=turn)

    def no_action(self, fault: str, text: str = "", *, turn: int = 0) -> Transition:
        """Notes a model's turn that held no action, see `NoAction`."""
        return self.step(NoAction(fault, text), turn=turn)

    def render(self) -> Any:
        """Shows the state: text, or an array of height x width x 3 bytes."""
        request = pb.RenderRequest(session_id=self.id)
        reply = self._route.ask(lambda envs: envs.Render, request)
        return value_from_proto(reply.frame)

    def fork(self, step: int | None = None, labels: Mapping[str, str] | None = None) -> Session:
        """Copies the session; the copy has its own log and outlives this one.

        Args:
            step: Of the latest episode, 0 for just after its reset; None: the current one.
            labels: Added to those of this session.

        Raises:
            BadRequest: The episode has not come to that step.
            RailgymError: See `railgym.errors`. After `Unavailable` or `DeadlineExceeded` there
                may be a copy that nobody holds, until its lease runs out.
        """
        request = pb.ForkSessionRequest(session_id=self.id, step=step, labels=labels or {})
        reply = self._route.ask_once(lambda envs: envs.ForkSession, request)
        session = Session(
            self._route.branch(),
            reply.session_id,
            self.env,
            self.task,
            reply.lease_seconds,
            reply.agent_token,
        )
        session.episode = int(reply.episode_id.rpartition(".")[2])
        session.steps = reply.step
        session.state_hash = reply.state_hash
        session.end_reason = self.end_reason if reply.step == self.steps else None
        return session

    def claim(self, claim: Mapping[str, Any]) -> None:
        """Writes into the log what you say of your agent, for instance its model and its usage.

        It is marked as claimed and never used to judge an episode.

        Args:
            claim: JSON values by name; at most 64 KiB of JSON.
        """
        text = json.dumps(dict(claim), allow_nan=False)
        request = pb.RecordClaimRequest(session_id=self.id, claim_json=text)
        self._route.ask_once(lambda envs: envs.RecordClaim, request)

    def close(self, reason: str | None = None) -> None:
        """Ends the session. Closing twice is fine.

        Args:
            reason: "time_limit", or "api_error" where the agent's model could not be reached;
                None: the client is done with it.
        """
        if self._closed:
            return
        request = pb.CloseSessionRequest(session_id=self.id, reason=end_reason_to_proto(reason))
        self._route.ask(lambda envs: envs.CloseSession, request)
        self._closed = True

    def __enter__(self) -> Self:
        """Gives the session."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the session, unless no server is there to do it: then its lease does."""
        if not isinstance(error, Unavailable):
            self.close()


def as_action(action: Any) -> Action:
    """Takes anything that is no action of `railgym` for a value of a plain action space."""
    return action if isinstance(action, Action) else Plain(action)
