"""Makes the bundled environments known to Gymnasium, as environments on a server.

Importing Gymnasium takes longer than `import railgym` may, so where it is not there yet the
registration waits for it, whichever of the two a program imports first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

ENV_IDS = (
    "railgym/MultiverseMath-v1",
    "railgym/Orders-v1",
    "railgym/Relational-v1",
    "railgym/Typewriter-v1",
    "railgym/TypewriterKeys-v1",
    "railgym/TypewriterPolicy-v1",
)
"""What every server hosts."""


def register() -> None:
    """Registers each of `ENV_IDS` with Gymnasium."""
    import gymnasium

    for env_id in ENV_IDS:
        gymnasium.register(
            env_id,
            entry_point="railgym.gym_env:RailgymEnv",
            vector_entry_point="railgym.vector_env:RailgymVectorEnv",
            kwargs={"env_id": env_id},
        )


def register_soon() -> None:
    """Registers now where Gymnasium is imported, else as soon as it is."""
    if "gymnasium" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Await())


class _Await:
    """A finder that finds nothing itself, but learns that Gymnasium is being imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module: ModuleType) -> None:
                run(module)
                register()

            spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec
