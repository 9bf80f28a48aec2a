"""Drives dm_env_rpc: a stream a session, as its own client does."""

import asyncio
import sys

import grpc
from dm_env_rpc.v1 import dm_env_rpc_pb2 as pb
from dm_env_rpc.v1 import tensor_utils
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


class StreamTypist(Typist):
    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__()
        self._stream = channel.stream_stream("/dm_env_rpc.v1.Environment/Process")()

    @classmethod
    async def open(cls, channel: grpc.aio.Channel) -> "StreamTypist":
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


async def main() -> None:
    address, sessions = sys.argv[1], int(sys.argv[2])
    async with grpc.aio.insecure_channel(address) as channel:
        await drive(await open_all([lambda: StreamTypist.open(channel)] * sessions))


if __name__ == "__main__":
    asyncio.run(main())
