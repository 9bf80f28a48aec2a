"""An environment on a server as a `gymnasium.Env`.

    env = railgym.make("railgym/Typewriter-v1", address="localhost:50051")

It has the spaces and gives the transitions of the environment itself. Nothing is opened before
its first use, so that it may be made in one process and used in another that was forked.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from railgym.actions import Transition
from railgym.client import connect
from railgym.credentials import Secret
from railgym.errors import Unavailable
from railgym.session import Session
from railgym.spaces import AS_THEY_ARE, ToolShaping

RENDER_MODES = ("rgb_array", "ansi")
"""What can travel. A server renders in the first of these that an environment has."""


def make(env_id: str, address: str = "localhost:50051", **settings: Any) -> RailgymEnv:
    """Makes an environment on a server, of any id that the server hosts.

    Args:
        env_id: For instance "railgym/Typewriter-v1" or "CartPole-v1".
        address: "host:port" of the server.
        settings: As `RailgymEnv`.
    """
    return RailgymEnv(env_id, address, **settings)


class RailgymEnv(gymnasium.Env[Any, Any]):
    """A `gymnasium.Env` over a session.

    Its errors are those of `railgym.errors`. Its `np_random` is not the environment's own, which
    is on the server, but is seeded alike.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": list(RENDER_MODES),
        "render_fps": 30,
    }

    def __init__(
        self,
        env_id: str,
        address: str = "localhost:50051",
        *,
        task_id: str | None = None,
        render_mode: str | None = None,
        labels: Mapping[str, str] | None = None,
        arguments: str = "strict",
        tools: ToolShaping = AS_THEY_ARE,
        **connection: Any,
    ) -> None:
        """Opens nothing yet.

        Args:
            env_id: Id of the environment on the server.
            address: "host:port" of the server.
            task_id: The task; None: the environment's own reward counts.
            render_mode: "ansi", "rgb_array" or None.
            labels: As `Client.session`.
            arguments: As `Client.session`.
            tools: As `Client.session`.
            connection: As `railgym.connect`.
        """
        if connection.get("token") is not None:
            connection["token"] = Secret(connection["token"])
        self._client = connect(address, **connection)
        tools = ToolShaping(*tools)  # a spec that was JSON has a list
        self._open = partial(self._client.session, env_id, task_id, labels, arguments, tools)
        self.render_mode = render_mode
        self.spec = EnvSpec(
            id=env_id,
            entry_point="railgym.gym_env:RailgymEnv",
            order_enforce=False,
            disable_env_checker=True,
            kwargs={
                "env_id": env_id,
                "address": address,
                "task_id": task_id,
                "render_mode": render_mode,
                "labels": labels,
                "arguments": arguments,
                "tools": tools,
                **connection,
            },
        )

    @cached_property
    def session(self) -> Session:
        """The session, opened by the first use.

        Raises:
            ValueError: The environment does not have the render mode.
            RailgymError: See `Client.session`.
        """
        session = self._open()
        modes = [mode for mode in RENDER_MODES if mode in session.env.render_modes]
        if self.render_mode not in (None, *modes):
            session.close()
            raise ValueError(f"expected a render mode of {modes} or None, got {self.render_mode!r}")
        self.metadata = {**self.metadata, "render_modes": modes}
        return session

    # Gymnasium declares attributes; these are filled by the first use.
    @cached_property
    def action_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        """The environment's own; a `ToolSpace` for tool environments."""
        return self.session.env.action_space

    @cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        """The environment's own; text for tool environments."""
        return self.session.env.observation_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode, as `Session.reset`."""
        observation, info = self.session.reset(seed, options)
        if self.session.seed is not None:
            super().reset(seed=self.session.seed)
        return observation, info

    def step(self, action: Any) -> Transition:
        """Takes a step, as `Session.step`."""
        return self.session.step(action)

    def render(self) -> Any:
        """Shows the state: text for "ansi", an array of height x width x 3 for "rgb_array"."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() shows nothing, for the environment has no render_mode")
            return None
        return self.session.render()

    def close(self) -> None:
        """Closes the session and the connection. Closing twice is fine."""
        session = self.__dict__.pop("session", None)
        if session is not None:
            with suppress(Unavailable):  # then the session's lease ends it
                session.close()
        self._client.close()
