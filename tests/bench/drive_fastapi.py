"""Drives FastAPI: a kept-alive connection a session, and requests written by hand.

An HTTP client library takes longer over a request than the server does, and would be all that is
measured.
"""

import asyncio
import json
import sys

from driving import Typist, drive, open_all
from paper import TARGET


def _post(path: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(content)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + content


class HttpTypist(Typist):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader = reader
        self._writer = writer
        self._path = ""

    @classmethod
    async def open(cls, address: str) -> "HttpTypist":
        host, port = address.split(":")
        typist = cls(*await asyncio.open_connection(host, int(port)))
        number = json.loads(await typist._exchange(_post("/sessions")))
        typist._path = f"/sessions/{number}"
        return typist

    async def begin(self) -> None:
        await self._exchange(_post(f"{self._path}/reset", {"target": TARGET}))

    async def send(self, place: int) -> bytes:
        return await self._exchange(_post(f"{self._path}/step", {"letter": TARGET[place]}))

    def papers(self, reply: bytes) -> list[str]:
        return [json.loads(reply)["paper"]]

    async def _exchange(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        return await self._reader.readexactly(int(length))


async def main() -> None:
    address, sessions = sys.argv[1], int(sys.argv[2])
    await drive(await open_all([lambda: HttpTypist.open(address)] * sessions))


if __name__ == "__main__":
    asyncio.run(main())
