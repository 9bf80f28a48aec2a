"""Runs an ASGI application on a free port, for the peers that speak HTTP.

uvicorn as it comes by default; only its pings are off, so that servers which wait for their turn
take no time from the one that is measured.
"""

import asyncio
import socket

import uvicorn


def serve(app, name):
    """Serves, says where on stdout, and runs until it is killed."""
    asyncio.run(_serve(app, name))


async def _serve(app, name):
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:  # else asyncio leaves Nagle's on
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, log_level="warning", ws_ping_interval=None, timeout_keep_alive=3_600
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        print(f"{name} serves on 127.0.0.1:{listening.getsockname()[1]}", flush=True)
        await serving
