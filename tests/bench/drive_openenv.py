"""Drives OpenEnv, a WebSocket a session. HOW: "lean" or "own".

"lean" sends text made beforehand through the library that OpenEnv's own client stands on, and
without compression; "own" is that client as its users have it, compression and parsing included.
"""

import asyncio
import json
import sys

from driving import Typist, drive, open_all
from openenv.core.generic_client import GenericEnvClient
from paper import STEPS, TARGET
from websockets.asyncio.client import ClientConnection, connect

RESET = json.dumps({"type": "reset", "data": {"target": TARGET}})
LETTERS = [json.dumps({"type": "step", "data": {"letter": letter}}) for letter in TARGET[:STEPS]]
OPEN_SECONDS = 60.0


class LeanTypist(Typist):
    def __init__(self, socket: ClientConnection) -> None:
        super().__init__()
        self._socket = socket

    @classmethod
    async def open(cls, address: str) -> "LeanTypist":
        uri = f"ws://{address}/ws"
        socket = await connect(uri, open_timeout=OPEN_SECONDS, ping_interval=None, compression=None)
        return cls(socket)

    async def begin(self) -> None:
        await self._exchange(RESET)

    async def send(self, place: int) -> str:
        return await self._exchange(LETTERS[place])

    def papers(self, reply: str) -> list[str]:
        return [json.loads(reply)["data"]["observation"]["paper"]]

    async def _exchange(self, message: str) -> str:
        await self._socket.send(message)
        return await self._socket.recv()


class OwnTypist(Typist):
    def __init__(self, client: GenericEnvClient) -> None:
        super().__init__()
        self._client = client

    @classmethod
    async def open(cls, address: str) -> "OwnTypist":
        client = GenericEnvClient(
            base_url=f"ws://{address}",
            connect_timeout_s=OPEN_SECONDS,
            websocket_ping_interval_s=None,
        )
        await client.connect()
        return cls(client)

    async def begin(self) -> None:
        await self._client.reset(target=TARGET)

    async def send(self, place: int) -> object:
        return await self._client.step({"letter": TARGET[place]})

    def papers(self, reply: object) -> list[str]:
        return [reply.observation["paper"]]


KINDS = {"lean": LeanTypist, "own": OwnTypist}


async def main() -> None:
    address, sessions, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    await drive(await open_all([lambda: KINDS[how].open(address)] * sessions))


if __name__ == "__main__":
    asyncio.run(main())
