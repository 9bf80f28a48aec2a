"""Drives Railgym. HOW says by which of its calls, or by its own client.

"unary": Step. "stream": Rollout, a stream a session and a row a message. "batch": Rollout, streams
of 64 sessions with a row of each in a message. "own": `railgym.Session`, which blocks.
"""

import asyncio
import json
import sys
from functools import cache, partial

import grpc
from driving import Typist, drive, open_all
from paper import STEPS, TARGET

import railgym
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2

ENV_ID = "railgym/Typewriter-v1"
OPTIONS = json.dumps({"target": TARGET})
BATCH = 64

ACTIONS = [
    episode_pb2.Action(
        tool_call=episode_pb2.ToolCall(
            name="type_letter", arguments_json=f'{{"letter":"{letter}"}}'
        )
    )
    for letter in TARGET[:STEPS]
]
STEP_TAILS = [
    pb.StepRequest(step=number, action=action).SerializeToString()
    for number, action in enumerate(ACTIONS, start=1)
]
"""All of a StepRequest but its session, which is put before them: messages may be joined so."""


class UnaryTypist(Typist):
    """A session that is stepped by unary calls."""

    def __init__(self, channel: grpc.aio.Channel, session_id: str) -> None:
        super().__init__()
        self._reset = channel.unary_unary("/railgym.v1.EnvService/Reset")
        self._step = channel.unary_unary("/railgym.v1.EnvService/Step")
        self._head = pb.StepRequest(session_id=session_id).SerializeToString()
        asked = pb.ResetRequest(session_id=session_id, seed=0, options_json=OPTIONS)
        self._begin = asked.SerializeToString()

    @classmethod
    async def open(cls, channel: grpc.aio.Channel) -> "UnaryTypist":
        create = channel.unary_unary("/railgym.v1.EnvService/CreateSession")
        reply = await create(pb.CreateSessionRequest(env_id=ENV_ID).SerializeToString())
        return cls(channel, pb.CreateSessionResponse.FromString(reply).session_id)

    async def begin(self) -> None:
        await self._reset(self._begin)

    async def send(self, place: int) -> bytes:
        return await self._step(self._head + STEP_TAILS[place])

    def papers(self, reply: bytes) -> list[str]:
        return [_paper(pb.StepResponse.FromString(reply).transition)]


class StreamTypist(Typist):
    """Sessions on a stream of their own, each a row in every message."""

    def __init__(self, channel: grpc.aio.Channel, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self._stream = channel.stream_stream("/railgym.v1.EnvService/Rollout")()
        reset = pb.RolloutReset(seed=0, options_json=OPTIONS)
        self._begin = _batch(pb.RolloutAction(slot=slot, reset=reset) for slot in range(rows))
        self._steps = step_messages(rows)

    @classmethod
    async def open(cls, channel: grpc.aio.Channel, rows: int) -> "StreamTypist":
        typist = cls(channel, rows)
        opening = pb.RolloutOpen(session=pb.CreateSessionRequest(env_id=ENV_ID))
        await typist._exchange(
            _batch(pb.RolloutAction(slot=slot, open=opening) for slot in range(rows))
        )
        return typist

    async def begin(self) -> None:
        await self._exchange(self._begin)

    async def send(self, place: int) -> bytes:
        return await self._exchange(self._steps[place])

    def papers(self, reply: bytes) -> list[str]:
        return [_paper(row.stepped.transition) for row in pb.RolloutResponse.FromString(reply).rows]

    async def _exchange(self, message: bytes) -> bytes:
        await self._stream.write(message)
        return await self._stream.read()


class OwnTypist(Typist):
    """A session of Railgym's own client, which holds up the loop: there can be one alone."""

    def __init__(self, session: railgym.Session) -> None:
        super().__init__()
        self._session = session

    async def begin(self) -> None:
        self._session.reset(seed=0, options={"target": TARGET})

    async def send(self, place: int) -> railgym.Transition:
        return self._session.call("type_letter", letter=TARGET[place])

    def papers(self, reply: railgym.Transition) -> list[str]:
        return [json.loads(reply.observation)["result"]]


@cache
def step_messages(rows: int) -> list[bytes]:
    """The messages of an episode, the same for every stream with so many rows."""
    return [
        _batch(
            pb.RolloutAction(slot=slot, step=pb.RolloutStep(action=action)) for slot in range(rows)
        )
        for action in ACTIONS
    ]


def _batch(rows) -> bytes:
    return pb.RolloutRequest(rows=rows).SerializeToString()


def _paper(transition: episode_pb2.Transition) -> str:
    return json.loads(transition.observation.json)["result"]


async def main() -> None:
    address, sessions, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if how == "own":
        with railgym.connect(address) as client, client.session(ENV_ID) as session:
            await drive([OwnTypist(session)])
        return
    async with grpc.aio.insecure_channel(address) as channel:
        if how == "unary":
            openings = [lambda: UnaryTypist.open(channel)] * sessions
        else:
            most = BATCH if how == "batch" else 1
            sizes = [min(most, sessions - start) for start in range(0, sessions, most)]
            openings = [partial(StreamTypist.open, channel, rows) for rows in sizes]
        await drive(await open_all(openings))


if __name__ == "__main__":
    asyncio.run(main())
