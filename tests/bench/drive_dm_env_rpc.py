"""Drives dm_env_rpc, a stream a session. HOW: "lean" or "own".

"lean" sends bytes made beforehand; "own" is dm_env_rpc's asynchronous client, which packs and
unpacks tensors.
"""

import asyncio
import sys

import grpc
from dm_env_rpc.v1 import dm_env_rpc_pb2 as pb
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.async_connection import AsyncConnection
from driving import Typist, drive, open_all
from paper import STEPS, TARGET

SETTINGS = {"target": tensor_utils.pack_tensor(TARGET)}


def _step(**fields) -> bytes:
    return pb.EnvironmentRequest(
        step=pb.StepRequest(requested_observations=[1, 2], **fields)
    ).SerializeToString()


RESET = pb.EnvironmentRequest(reset=pb.ResetRequest(settings=SETTINGS)).SerializeToString()
FIRST = _step()
LETTERS = [_step(actions={1: tensor_utils.pack_tensor(letter)}) for letter in TARGET[:STEPS]]


class LeanTypist(Typist):
    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__()
        self._stream = channel.stream_stream("/dm_env_rpc.v1.Environment/Process")()

    @classmethod
    async def open(cls, channel: grpc.aio.Channel) -> "LeanTypist":
        typist = cls(channel)
        for request in (
            pb.EnvironmentRequest(create_world=pb.CreateWorldRequest()),
            pb.EnvironmentRequest(
                join_world=pb.JoinWorldRequest(world_name="paper", settings=SETTINGS)
            ),
        ):
            await typist._exchange(request.SerializeToString())
        return typist

    async def begin(self) -> None:
        await self._exchange(RESET)
        await self._exchange(FIRST)

    async def send(self, place: int) -> bytes:
        return await self._exchange(LETTERS[place])

    def papers(self, reply: bytes) -> list[str]:
        observations = pb.EnvironmentResponse.FromString(reply).step.observations
        return [str(tensor_utils.unpack_tensor(observations[1]))]

    async def _exchange(self, message: bytes) -> bytes:
        await self._stream.write(message)
        return await self._stream.read()


class OwnTypist(Typist):
    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__()
        self._connection = AsyncConnection(channel)

    @classmethod
    async def open(cls, channel: grpc.aio.Channel) -> "OwnTypist":
        typist = cls(channel)
        await typist._connection.send(pb.CreateWorldRequest())
        await typist._connection.send(pb.JoinWorldRequest(world_name="paper", settings=SETTINGS))
        return typist

    async def begin(self) -> None:
        await self._connection.send(pb.ResetRequest(settings=SETTINGS))
        await self._connection.send(pb.StepRequest(requested_observations=[1, 2]))

    async def send(self, place: int) -> str:
        letter = tensor_utils.pack_tensor(TARGET[place])
        asked = pb.StepRequest(requested_observations=[1, 2], actions={1: letter})
        observations = (await self._connection.send(asked)).observations
        return str(tensor_utils.unpack_tensor(observations[1]))

    def papers(self, reply: str) -> list[str]:
        return [reply]


KINDS = {"lean": LeanTypist, "own": OwnTypist}


async def main() -> None:
    address, sessions, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    async with grpc.aio.insecure_channel(address) as channel:
        await drive(await open_all([lambda: KINDS[how].open(channel)] * sessions))


if __name__ == "__main__":
    asyncio.run(main())
