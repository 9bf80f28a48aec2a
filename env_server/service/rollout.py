"""The Rollout stream: many sessions, driven in batches of rows, as vectorised Gymnasium does.

Each row does what the unary call of its name does, through the same `Session`; a row that fails
carries its own status. The records of a batch go into the log in one write, before its response.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple

from env_server import codec
from env_server.errors import BadRequest, LogUnwritable, RailgymError
from env_server.service.calls import Calls, check_enum, reset_response
from env_server.service.session import Session
from env_server.service.sessions import Sessions
from env_server.service.status import CODES, metadata, reason, reason_to_proto
from env_server.service.subject import tell_of
from railgym.info_codec import wire_text
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2

MAX_SLOT = 65_535


class Slot(NamedTuple):
    """A session on a stream, and when it begins the next episode by itself."""

    session_id: str
    mode: pb.AutoresetMode.ValueType


class Rollout:
    """The slots of one stream."""

    def __init__(self, calls: Calls, sessions: Sessions) -> None:
        """Begins without a slot.

        Args:
            calls: Opens and closes sessions as requests ask for it.
            sessions: Holds the sessions.
        """
        self._calls = calls
        self._sessions = sessions
        self._slots: dict[int, Slot] = {}
        self._foreign = False  # whether any environment runs in a process of its own

    async def answer(self, request: pb.RolloutRequest) -> pb.RolloutResponse:
        """Plays a batch of rows: those of one slot in order, foreign environments side by side.

        Raises:
            LogUnwritable: The log cannot be written; the stream ends.
        """
        self._sessions.journal.check()
        touched: dict[str, Session] = {}
        outcomes = [pb.RolloutOutcome()] * len(request.rows)

        async def play(places: Iterable[int]) -> None:
            for place in places:
                outcomes[place] = await self._row(request.rows[place], touched)

        if self._foreign:
            await _together(play(places) for places in _by_slot(request.rows))
        else:
            await play(range(len(outcomes)))
        tell_of(None)  # from here on it is about all rows
        self._sessions.flush(touched.values())
        return pb.RolloutResponse(rows=outcomes)

    async def close(self) -> None:
        """Closes every slot, as the client that held the stream is done with it."""
        while self._slots:
            slot, (session_id, _) = next(iter(self._slots.items()))
            await self._sessions.close(session_id, "client_closed")
            del self._slots[slot]

    def abandon(self) -> None:
        """Ends the leases of all slots that are left, as the stream has broken."""
        for slot in self._slots.values():
            self._sessions.abandon(slot.session_id)

    async def _row(self, row: pb.RolloutAction, touched: dict[str, Session]) -> pb.RolloutOutcome:
        outcome = pb.RolloutOutcome(slot=row.slot)
        try:
            match row.WhichOneof("kind"):
                case "open":
                    outcome.opened.CopyFrom(await self._open(row.slot, row.open, touched))
                case "reset":
                    outcome.reset.CopyFrom(await self._reset(row, touched))
                case "step":
                    outcome.stepped.CopyFrom(await self._step(row, touched))
                case "close":
                    await self._close(row)
                    outcome.closed.SetInParent()
                case None:
                    raise BadRequest(
                        "expected a row that opens, resets, steps or closes, got an empty one",
                        field="rows",
                        expected="open, reset, step or close",
                        got="nothing",
                    )
        except LogUnwritable:
            raise
        except RailgymError as e:
            self._sessions.metrics.rpc_error("Rollout", reason(e))
            outcome.error.CopyFrom(_row_error(e))
        return outcome

    async def _open(
        self, slot: int, row: pb.RolloutOpen, touched: dict[str, Session]
    ) -> pb.CreateSessionResponse:
        if slot in self._slots or slot > MAX_SLOT:
            raise BadRequest(
                f"expected a free slot up to {MAX_SLOT}, got {slot}",
                field="slot",
                expected=f"a free slot up to {MAX_SLOT}",
                got=slot,
            )
        check_enum("autoreset_mode", row.autoreset_mode, pb.AutoresetMode.values())
        mode = row.autoreset_mode or pb.AUTORESET_MODE_NEXT_STEP
        session = await self._calls.create(row.session)
        touched[session.session_id] = session
        self._slots[slot] = Slot(session.session_id, mode)
        self._foreign = self._foreign or session.player.opening.entry.is_foreign
        return await self._calls.created(session)

    async def _reset(self, row: pb.RolloutAction, touched: dict[str, Session]) -> pb.ResetResponse:
        session, _ = await self._find(row.slot, touched)
        seed = row.reset.seed if row.reset.HasField("seed") else None
        options = codec.options_from_json(row.reset.options_json)
        number, started = await session.reset(0, seed, options)
        return reset_response(session.session_id, number, started)

    async def _step(
        self, row: pb.RolloutAction, touched: dict[str, Session]
    ) -> pb.RolloutTransition:
        session, mode = await self._find(row.slot, touched)
        episode = session.player.running()
        if episode.end is not None and mode == pb.AUTORESET_MODE_NEXT_STEP:
            return await self._begin_next(session)
        transition = await session.step(0, episode.latest + 1, row.step.action, row.step.turn)
        if episode.end is not None and mode == pb.AUTORESET_MODE_SAME_STEP:
            return await self._end_and_begin(session, transition)
        return pb.RolloutTransition(
            transition=transition, episode=session.player.number, step=episode.latest
        )

    async def _begin_next(self, session: Session) -> pb.RolloutTransition:
        """The step after an end: the action is ignored, the reward 0."""
        number, started = await session.reset(0, None, {})
        first = reset_response(session.session_id, number, started)
        transition = episode_pb2.Transition(
            observation=first.observation, info=first.info, state_hash=first.state_hash
        )
        return pb.RolloutTransition(transition=transition, episode=number)

    async def _end_and_begin(
        self, session: Session, last: episode_pb2.Transition
    ) -> pb.RolloutTransition:
        """The step that ends: its reward and flags, with the first observation of the next."""
        number, started = await session.reset(0, None, {})
        first = reset_response(session.session_id, number, started)
        transition = episode_pb2.Transition(
            observation=first.observation,
            reward=last.reward,
            terminated=last.terminated,
            truncated=last.truncated,
            info=first.info,
            state_hash=first.state_hash,
            end_reason=last.end_reason,
        )
        return pb.RolloutTransition(
            transition=transition,
            final_observation=last.observation,
            final_info=last.info,
            episode=number,
        )

    async def _close(self, row: pb.RolloutAction) -> None:
        slot = self._slot(row.slot)
        await self._calls.close(slot.session_id, row.close.reason)
        del self._slots[row.slot]

    async def _find(
        self, slot: int, touched: dict[str, Session]
    ) -> tuple[Session, pb.AutoresetMode.ValueType]:
        session_id, mode = self._slot(slot)
        session = await self._sessions.find(session_id)
        touched[session_id] = session
        return session, mode

    def _slot(self, slot: int) -> Slot:
        if slot not in self._slots:
            raise BadRequest(
                f"expected a slot that is open, got {slot}",
                field="slot",
                expected="an open slot",
                got=slot,
            )
        return self._slots[slot]


def _by_slot(rows: Iterable[pb.RolloutAction]) -> Iterable[list[int]]:
    """The places of the rows of each slot, in order."""
    places = defaultdict(list)
    for place, row in enumerate(rows):
        places[row.slot].append(place)
    return places.values()


async def _together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Does all of it, and raises what one of them raised only then."""
    for failure in await asyncio.gather(*works, return_exceptions=True):
        if failure is not None:
            raise failure


def _row_error(error: RailgymError) -> pb.RolloutError:
    code: int = CODES[type(error)].value[0]
    return pb.RolloutError(
        code=code,
        message=wire_text(str(error)),
        reason=reason_to_proto(error),
        metadata=metadata(error),
    )
