"""Any Gymnasium environment as a stateful one: CartPole-v1, or a user's own class.

Gymnasium environments do not say what their state is, so the state hash covers what can be seen
of it: the latest observation and the generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from railgym.actions import Transition


class Hosted:
    """A plain Gymnasium environment, with a state hash."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Takes over an environment that has not been reset."""
        self.env = env
        self.action_space = env.action_space
        self.observation_space = env.observation_space
        self._observation: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's; no options count as None."""
        self._observation, info = self.env.reset(seed=seed, options=options or None)
        return self._observation, info

    def step(self, action: Any) -> Transition:
        """As Gymnasium's."""
        self._observation, reward, terminated, truncated, info = self.env.step(action)
        ended = bool(terminated), bool(truncated)
        return Transition(self._observation, float(reward), *ended, info)

    def state_hash(self) -> bytes:
        """The environment's own state hash, or SHA-256 over observation and generator."""
        own = getattr(self.env.unwrapped, "state_hash", None)
        if own is not None:
            return bytes(own())
        digest = hashlib.sha256()
        _feed(digest, self._observation)
        _feed(digest, generator_state(self.env))
        return digest.digest()

    def render(self) -> Any:
        """As Gymnasium's."""
        return self.env.render()

    def close(self) -> None:
        """As Gymnasium's."""
        self.env.close()


def generator_state(env: Any) -> dict[str, Any] | None:
    """The state of an environment's generator as JSON; None where it was never seeded."""
    plain = env.env if isinstance(env, Hosted) else env
    generator = plain.unwrapped._np_random  # the public property would seed it from the clock
    state = None if generator is None else generator.bit_generator.state
    return state if isinstance(state, dict) and state["bit_generator"] == "PCG64" else None


def set_generator_state(env: Any, state: Mapping[str, Any]) -> None:
    """Puts an environment's generator where `generator_state` saw it.

    Raises:
        ValueError: The state is not one of PCG64.
    """
    plain = env.env if isinstance(env, Hosted) else env
    bits: Any = np.random.PCG64()
    bits.state = dict(state)
    plain.unwrapped.np_random = np.random.Generator(bits)


def _feed(digest: Any, value: Any) -> None:
    """Feeds a value of any space to a digest: its type, its shape, and where each part ends."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        digest.update(f"{array.dtype.str}{array.shape};".encode())
        if array.dtype.hasobject:
            _feed(digest, array.tolist())
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    elif isinstance(value, Mapping):
        digest.update(f"{{{len(value)}}}".encode())
        for key in sorted(value, key=str):
            _feed(digest, str(key))
            _feed(digest, value[key])
    elif isinstance(value, tuple | list):
        digest.update(f"[{len(value)}]".encode())
        for item in value:
            _feed(digest, item)
    elif isinstance(value, str | bool | int | float) or value is None:
        digest.update(f"{value!r};".encode())
    else:
        raise TypeError(f"no digest for an observation of type {type(value).__name__}")
