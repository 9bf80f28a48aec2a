"""The bundled environments: one file each, and one line here."""

from __future__ import annotations

from typing import Any

import gymnasium

from env_server.envs.multiverse_math import MultiverseMath
from env_server.envs.orders import Orders
from env_server.envs.relational import Relational
from env_server.envs.typewriter import Typewriter, TypewriterKeys, TypewriterPolicy

ENVS: dict[str, type[gymnasium.Env[Any, Any]]] = {
    "railgym/MultiverseMath-v1": MultiverseMath,
    "railgym/Orders-v1": Orders,
    "railgym/Relational-v1": Relational,
    "railgym/Typewriter-v1": Typewriter,
    "railgym/TypewriterKeys-v1": TypewriterKeys,
    "railgym/TypewriterPolicy-v1": TypewriterPolicy,
}
