"""What a stranger may do to a port: bytes that are no call, broken calls, slow streams."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator

import grpc

from railgym.v1 import env_service_pb2 as pb
from railgym.v1.env_service_pb2_grpc import EnvServiceStub

SECONDS = 3.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_HEADERS, END_STREAM = 4, 1


def _frame(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    """A frame of HTTP/2, whose length need not be true."""
    size = struct.pack(">I", len(payload) if length is None else length)[1:]
    return size + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _call(method: str, body: bytes, stream: int = 1) -> bytes:
    """A call as gRPC writes it, around any body."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/railgym.v1.EnvService/{method}",
        ":authority": "chaos",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    headers = _frame(HEADERS, END_HEADERS, stream, block)
    return headers + _frame(DATA, END_STREAM, stream, body)


def garbage(rng: random.Random) -> bytes:
    """Bytes that are no good call, each time of another kind."""
    noise = rng.randbytes(rng.randint(1, 8_000))
    begin = PREFACE + _frame(SETTINGS, 0, 0, b"")
    return rng.choice(
        [
            noise,
            b"GET / HTTP/1.1\r\nHost: chaos\r\n\r\n" + noise,
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
            PREFACE + noise,
            PREFACE[: rng.randrange(len(PREFACE))],
            begin + _frame(rng.randrange(256), rng.randrange(256), rng.randrange(9), noise),
            begin + _frame(HEADERS, END_HEADERS, 1, noise),
            begin + _frame(DATA, 0, 1, b"", length=0xFFFFFF),
            begin + _call("Step", b"\0" + struct.pack(">I", 0xFFFFFFFF) + noise),
            begin + _call("Step", b"\0" + struct.pack(">I", len(noise)) + noise),
            begin + _call("Step", b"\1" + struct.pack(">I", len(noise)) + noise),
            begin + _call("Rollout", b"\0" + struct.pack(">I", len(noise)) + noise),
            begin + b"".join(_call("NoSuchMethod", b"", 2 * n + 1) for n in range(100)),
        ]
    )


async def send_garbage(address: str, sockets: int, rng: random.Random) -> None:
    """Sends garbage over many connections at once, some of it byte by byte."""
    inputs = [garbage(rng) for _ in range(sockets)]
    await asyncio.gather(*(_send(address, data, i % 4 == 0) for i, data in enumerate(inputs)))


async def dawdle(address: str, streams: int) -> None:
    """Holds streams open for a while, on which next to nothing is sent."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = EnvServiceStub(channel)
        calls = [stub.Rollout(_slowly(number), timeout=SECONDS) for number in range(streams)]
        await asyncio.gather(*map(_read, calls))


async def _send(address: str, data: bytes, slow: bool) -> None:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, TimeoutError):  # the server may hang up as it likes
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                for block in [data[i : i + 1] for i in range(60)] if slow else [data]:
                    writer.write(block)
                    await writer.drain()
                    await asyncio.sleep(0.02)
                while await reader.read(65_536):
                    pass
            finally:
                writer.transport.abort()


async def _slowly(number: int) -> AsyncIterator[pb.RolloutRequest]:
    """No row at all, or one that nobody can answer well, now and then."""
    while True:
        await asyncio.sleep(SECONDS if number % 2 else 0.5)
        yield pb.RolloutRequest(rows=[pb.RolloutAction(slot=number)])


async def _read(call: grpc.aio.StreamStreamCall[pb.RolloutRequest, pb.RolloutResponse]) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):  # its deadline, or a server that is killed
        async for _ in call:
            pass
