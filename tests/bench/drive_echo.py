"""Drives the bare echo: HOW is "unary" or "stream". What it sends is as long as Railgym's Step."""

import asyncio
import sys

import grpc
from driving import Typist, drive, open_all
from paper import TARGET

MESSAGE = bytes(80)


class UnaryEcho(Typist):
    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__()
        self._call = channel.unary_unary("/bench.Echo/Unary")

    async def begin(self) -> None:
        pass

    async def open(self) -> Typist:
        await self.send(0)
        return self

    async def send(self, place: int) -> bytes:
        return await self._call(MESSAGE)

    def papers(self, reply: bytes) -> list[str]:
        assert reply == MESSAGE
        return [TARGET[: self.taken]]


class StreamEcho(UnaryEcho):
    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(channel)
        self._call = channel.stream_stream("/bench.Echo/Stream")

    async def open(self) -> Typist:
        self._stream = self._call()
        return await super().open()

    async def send(self, place: int) -> bytes:
        await self._stream.write(MESSAGE)
        return await self._stream.read()


KINDS = {"unary": UnaryEcho, "stream": StreamEcho}


async def main() -> None:
    address, sessions, how = sys.argv[1:]
    async with grpc.aio.insecure_channel(address) as channel:
        await drive(await open_all([KINDS[how](channel).open for _ in range(int(sessions))]))


if __name__ == "__main__":
    asyncio.run(main())
