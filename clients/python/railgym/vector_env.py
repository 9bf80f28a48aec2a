"""Many environments on a server as one `gymnasium.vector.VectorEnv`, over one Rollout stream.

    envs = railgym.make_vec("CartPole-v1", num_envs=8, address="localhost:50051")

It returns what Gymnasium's `SyncVectorEnv` of the same environments would, autoreset included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from railgym.client import session_request
from railgym.codec import (
    action_to_proto,
    info_from_proto,
    observation_from_proto,
    transition_from_proto,
)
from railgym.connection import Connection
from railgym.errors import RailgymError
from railgym.records import env_from_proto
from railgym.rollout import RolloutStream
from railgym.session import as_action
from railgym.spaces import AS_THEY_ARE, ToolShaping
from railgym.tensors import Array
from railgym.v1 import env_service_pb2 as pb

MODES = {
    AutoresetMode.NEXT_STEP: pb.AUTORESET_MODE_NEXT_STEP,
    AutoresetMode.SAME_STEP: pb.AUTORESET_MODE_SAME_STEP,
    AutoresetMode.DISABLED: pb.AUTORESET_MODE_DISABLED,
}

Info: TypeAlias = dict[str, Any]


def make_vec(
    env_id: str, num_envs: int = 1, address: str = "localhost:50051", **settings: Any
) -> RailgymVectorEnv:
    """Makes many environments on a server, of any id that the server hosts.

    Args:
        env_id: For instance "railgym/TypewriterPolicy-v1" or "CartPole-v1".
        num_envs: How many, 1 to 65,536.
        address: "host:port" of the server.
        settings: As `RailgymVectorEnv`.
    """
    return RailgymVectorEnv(env_id, num_envs, address, **settings)


class RailgymVectorEnv(VectorEnv[Any, Any, Array]):
    """A `VectorEnv` over one stream, which it opens at once.

    Its errors are those of `railgym.errors`. If the connection breaks, its episodes are lost: the
    server ends them. In an error of one environment the others have taken their step.

    Attributes:
        session_ids: The session of each environment.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        address: str = "localhost:50051",
        *,
        task_id: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        labels: Mapping[str, str] | None = None,
        arguments: str = "strict",
        tools: ToolShaping = AS_THEY_ARE,
        **connection: Any,
    ) -> None:
        """Opens a stream and a session for each environment.

        Args:
            env_id: Id of the environment on the server.
            num_envs: How many, 1 to 65,536.
            address: "host:port" of the server.
            task_id: The task of all; None: the environment's own reward counts.
            autoreset_mode: When the next episode begins by itself: one of Gymnasium's three.
            labels: As `Client.session`.
            arguments: As `Client.session`.
            tools: As `Client.session`.
            connection: As `railgym.connect`.

        Raises:
            RailgymError: See `Client.session`.
            ValueError: `autoreset_mode` is none of the three, `arguments` none of the two, or a
                number of `tools` out of bounds.
        """
        mode = AutoresetMode(autoreset_mode)
        session = session_request(env_id, task_id, labels, arguments, tools)
        opening = pb.RolloutOpen(session=session, autoreset_mode=MODES[mode])
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": mode, "render_modes": []}
        self._connection = Connection(address, **connection)
        self._stream = RolloutStream(self._connection)
        self._seen: list[Any] = [None] * num_envs
        self._open([pb.RolloutAction(slot=slot, open=opening) for slot in range(num_envs)])

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Info | None = None
    ) -> tuple[Any, Info]:
        """Begins an episode in every environment.

        Args:
            seed: One for each; an integer stands for itself, the next one, and so on; None: as in
                `Session.reset`.
            options: For every environment. "reset_mask", an array of bool, is taken out: it says
                which ones to reset.

        Raises:
            ValueError: There is not one seed, or one element of the mask, for each environment.
            RailgymError: See `Session.reset`.
        """
        seeds = self._seeds(seed)
        options = dict(options or {})
        slots = self._masked(options.pop("reset_mask", None))
        text = json.dumps(options, allow_nan=False) if options else ""
        rows = [
            pb.RolloutAction(slot=slot, reset=pb.RolloutReset(seed=seeds[slot], options_json=text))
            for slot in slots
        ]
        infos: Info = {}
        for outcome in self._stream.exchange(rows):
            self._seen[outcome.slot] = self._observation(outcome.reset.observation)
            infos = self._add_info(infos, info_from_proto(outcome.reset.info), outcome.slot)
        return self._batch(), infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Info]:
        """Takes a step in every environment.

        Args:
            actions: A value of `action_space`.

        Raises:
            EpisodeOver: The autoreset mode is DISABLED, and an ended one was not reset.
            RailgymError: See `Session.step`.
        """
        rewards = np.zeros(self.num_envs, np.float64)
        terminations = np.zeros(self.num_envs, np.bool_)
        truncations = np.zeros(self.num_envs, np.bool_)
        infos: Info = {}
        for outcome in self._stream.exchange(list(self._step_rows(actions))):
            slot, stepped = outcome.slot, outcome.stepped
            seen = transition_from_proto(stepped.transition, self.single_observation_space)
            self._seen[slot], rewards[slot], terminations[slot], truncations[slot], info = seen
            if stepped.HasField("final_observation"):
                last = {
                    "final_obs": self._observation(stepped.final_observation),
                    "final_info": info_from_proto(stepped.final_info),
                }
                infos = self._add_info(infos, last, slot)
            infos = self._add_info(infos, info, slot)
        return self._batch(), rewards, terminations, truncations, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the sessions, the stream and the connection."""
        self._stream.close()
        self._connection.close()

    def _open(self, rows: Sequence[pb.RolloutAction]) -> None:
        try:
            opened = [outcome.opened for outcome in self._stream.exchange(rows)]
        except RailgymError:
            self.close()
            raise
        self.session_ids = tuple(reply.session_id for reply in opened)
        env = env_from_proto(opened[0].env)
        self.single_action_space = env.action_space
        self.single_observation_space = env.observation_space
        self.action_space = batch_space(env.action_space, self.num_envs)
        self.observation_space = batch_space(env.observation_space, self.num_envs)

    def _step_rows(self, actions: Any) -> Iterator[pb.RolloutAction]:
        each = iterate(self.action_space, actions)
        for slot, action in zip(range(self.num_envs), each, strict=True):
            message = action_to_proto(as_action(action), self.single_action_space)
            yield pb.RolloutAction(slot=slot, step=pb.RolloutStep(action=message))

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int):
            return range(seed, seed + self.num_envs)
        if len(seed) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} seeds, got {len(seed)}")
        return seed

    def _masked(self, mask: Array | None) -> Sequence[int]:
        if mask is None:
            return range(self.num_envs)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ValueError(
                f"expected a reset_mask of {self.num_envs} bools, one of them True; got {mask!r}"
            )
        return [int(slot) for slot in np.flatnonzero(mask)]

    def _observation(self, message: Any) -> Any:
        return observation_from_proto(message, self.single_observation_space)

    def _batch(self) -> Any:
        empty: Any = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, self._seen, empty)
