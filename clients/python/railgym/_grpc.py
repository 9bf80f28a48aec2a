"""Imports grpc in a way that lets a program fork.

A Python process that has used gRPC and then forks, as `gymnasium.vector.AsyncVectorEnv` does,
gets children whose calls hang, unless fork support is on before grpc is first imported. In a
client it costs nothing that could be measured; a value of the user's own is left alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")

import grpc
from grpc_status import rpc_status

__all__ = ["grpc", "rpc_status"]
