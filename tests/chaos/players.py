"""Clients that play while everything breaks: one process of many threads, until SIGTERM.

Each checks every reply against the same episode in process, and writes a step into its journal
as soon as it is acknowledged. What it could not explain is in the report that is left at the end.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from plays import Play, Shadow, plays

import railgym
from env_server.registry import Registry
from railgym import codec
from railgym.connection import Connection
from railgym.errors import DeadlineExceeded, RailgymError, Unavailable
from railgym.rollout import RolloutStream
from railgym.session import Session
from railgym.v1 import env_service_pb2 as pb
from railgym.v1 import episode_pb2

CALL_SECONDS = 5.0
PATIENCE_SECONDS = 8.0
HUNG_SECONDS = 60.0
"""Without an answer, once the weather is good."""

THINK_SECONDS = 0.15
ROLLOUT_EVERY = 5
"""Each fifth client drives its sessions over a Rollout stream."""

SLOTS = 3
OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each client, as in life
    ("grpc.keepalive_time_ms", 12_000),  # one that falls silent is noticed within 15 s
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
)

Reply = TypeVar("Reply")


class Wrong(Exception):
    """A reply that is not the one that is right."""


@dataclass
class Tally:
    """What one client went through."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


class Client(threading.Thread):
    """One client: plays episode after episode until it is told to finish."""

    def __init__(self, number: int, given: argparse.Namespace, finish: threading.Event) -> None:
        """Makes a client that has yet to start; it ends after the episode in which `finish` is."""
        super().__init__(name=f"client-{number}", daemon=True)
        self.number = number
        self.tally = Tally()
        self._given = given
        self._finish = finish
        self._rng = random.Random(f"{given.seed}/{number}")
        self._registry = REGISTRY
        self._journal = (given.folder / f"journal-{number:04}.jsonl").open("w", buffering=1)

    def run(self) -> None:
        """Plays; a thread that ends by an exception has left it in the tally."""
        play = self._play_rollout if self.number % ROLLOUT_EVERY == 0 else self._play_session
        episodes = plays(self.number, self._given.seed, self._registry)
        try:
            while not self._finish.is_set():
                try:
                    play(episodes)
                except (RailgymError, Wrong) as e:
                    at = time.strftime("%H:%M:%S")
                    self.tally.broken.append(f"{self.name} at {at}: {type(e).__name__}: {e}")
        except Exception as e:  # whatever it is, it belongs into the report
            self.tally.broken.append(f"{self.name} died: {type(e).__name__}: {e}")
        finally:
            self._journal.close()

    def _play_session(self, episodes) -> None:
        """Plays one session of a few episodes, each call of it again until it is answered."""
        with self._client() as client:
            play = next(episodes)
            session = self._persist(lambda: client.session(play.env_id))
            self.tally.counts["sessions"] += 1
            for _ in range(self._rng.randint(1, 3)):
                self._play_episode(session, play)
                play = next(episodes)
                if self._finish.is_set():
                    break
            self._persist(session.close)

    def _play_episode(self, session: Session, play: Play) -> None:
        shadow = Shadow(play, self._registry)
        observation, _ = self._persist(lambda: session.reset(play.seed, play.options))
        self._check(session, observation, shadow.start.observation)
        for action in play.actions:
            self._think()
            got = self._persist(lambda action=action: session.step(action))
            self._note(f"{session.id}.{session.episode}", session.steps, action, session.state_hash)
            expected = shadow.step(action)
            self._check(session, got, codec.transition_from_proto(expected))
            self._check(session, session.state_hash, expected.state_hash)
        self.tally.counts["episodes"] += 1

    def _play_rollout(self, episodes) -> None:
        """Plays an episode in each slot of a stream; where the stream breaks, they are lost."""
        connection = Connection(self._given.address, timeout_seconds=CALL_SECONDS, options=OPTIONS)
        try:
            stream = RolloutStream(connection)
            self.tally.counts["streams"] += 1
            self._play_slots(stream, [next(episodes) for _ in range(SLOTS)])
            stream.close()
        except (Unavailable, DeadlineExceeded) as e:
            self.tally.errors[type(e).__name__] += 1
            time.sleep(0.2)
        finally:
            connection.close()

    def _play_slots(self, stream: RolloutStream, chosen: list[Play]) -> None:
        shadows = [Shadow(play, self._registry) for play in chosen]
        opened = stream.exchange([_open(slot, play) for slot, play in enumerate(chosen)])
        ids = [outcome.opened.session_id for outcome in opened]
        self.tally.counts["sessions"] += len(ids)
        stream.exchange([_reset(slot, play) for slot, play in enumerate(chosen)])
        for step in range(max(len(play.actions) for play in chosen)):
            self._think()
            slots = [slot for slot, play in enumerate(chosen) if step < len(play.actions)]
            rows = [_step(slot, chosen[slot].actions[step]) for slot in slots]
            for slot, outcome in zip(slots, stream.exchange(rows), strict=True):
                action, got = chosen[slot].actions[step], outcome.stepped.transition
                self._note(f"{ids[slot]}.1", step + 1, action, got.state_hash)
                expected = shadows[slot].step(action)
                if got != expected:
                    raise Wrong(f"{ids[slot]}.1 step {step + 1}: expected {expected}, got {got}")
        self.tally.counts["episodes"] += len(chosen)

    def _persist(self, ask: Callable[[], Reply]) -> Reply:
        """Makes a call again until it is answered, which the client says is safe.

        In bad weather that may take any time: over a slow connection no reply comes soon enough.
        """
        until = math.inf
        while True:
            try:
                return ask()
            except (Unavailable, DeadlineExceeded) as e:
                self.tally.errors[type(e).__name__] += 1
                if self._finish.is_set():
                    until = min(until, time.monotonic() + HUNG_SECONDS)
                if time.monotonic() > until:
                    raise
                time.sleep(self._rng.uniform(0.05, 0.3))

    def _client(self) -> railgym.Client:
        return railgym.connect(
            self._given.address,
            timeout_seconds=CALL_SECONDS,
            patience_seconds=PATIENCE_SECONDS,
            startup_seconds=PATIENCE_SECONDS,
            options=OPTIONS,
        )

    def _note(self, episode: str, step: int, action, state_hash: bytes) -> None:
        """Writes down that a step was acknowledged."""
        sent = codec.action_to_proto(action).SerializeToString(deterministic=True)
        line = {"episode": episode, "step": step, "action": sent.hex(), "hash": state_hash.hex()}
        self._journal.write(json.dumps(line) + "\n")
        self.tally.counts["steps acknowledged"] += 1

    def _check(self, session: Session, got: object, expected: object) -> None:
        if got != expected:
            where = f"{session.id}.{session.episode} step {session.steps}"
            raise Wrong(f"{where}: expected {expected}, got {got}")

    def _think(self) -> None:
        if not self._finish.is_set():
            time.sleep(self._rng.expovariate(1 / THINK_SECONDS))


def _open(slot: int, play: Play) -> pb.RolloutAction:
    request = pb.CreateSessionRequest(env_id=play.env_id)
    row = pb.RolloutOpen(session=request, autoreset_mode=pb.AUTORESET_MODE_DISABLED)
    return pb.RolloutAction(slot=slot, open=row)


def _reset(slot: int, play: Play) -> pb.RolloutAction:
    row = pb.RolloutReset(seed=play.seed, options_json=json.dumps(play.options))
    return pb.RolloutAction(slot=slot, reset=row)


def _step(slot: int, action) -> pb.RolloutAction:
    message: episode_pb2.Action = codec.action_to_proto(action)
    return pb.RolloutAction(slot=slot, step=pb.RolloutStep(action=message))


def main() -> int:
    """Lets its clients play until SIGTERM, and writes what they went through."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, required=True, help="number of the first client")
    parser.add_argument("--count", type=int, required=True)
    given = parser.parse_args()
    finish = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: finish.set())
    clients = [Client(given.first + i, given, finish) for i in range(given.count)]
    for client in clients:
        client.start()
    while not finish.wait(0.5):  # a signal that another thread takes wakes no lock
        pass
    until = time.monotonic() + 1.5 * HUNG_SECONDS
    for client in clients:
        client.join(max(0.0, until - time.monotonic()))
    report = {
        "counts": sum((client.tally.counts for client in clients), Counter()),
        "errors": sum((client.tally.errors for client in clients), Counter()),
        "broken": [text for client in clients for text in client.tally.broken],
        "hung": [client.name for client in clients if client.is_alive()],
    }
    (given.folder / f"report-{given.first:04}.json").write_text(json.dumps(report))
    return 0


REGISTRY = Registry()

if __name__ == "__main__":
    sys.exit(main())
