"""A person's side of a session: lines come in, and steps go out.

It knows no terminal: the lines may come from anywhere, and a view shows what comes back.
"""

from __future__ import annotations

from collections.abc import Iterable

from env_server.cli.lines import BadLine, read_call, read_value
from env_server.cli.view import TextView
from railgym.errors import BadAction, EpisodeOver
from railgym.session import Session


class Player:
    """Plays one session, and the copies of it that `undo` makes."""

    def __init__(self, session: Session, view: TextView, seed: int) -> None:
        """Takes over a session that has not been reset.

        Args:
            session: Closed at the end.
            view: Shows what happens.
            seed: For every reset.
        """
        self._session = session
        self._view = view
        self._seed = seed

    def play(self, lines: Iterable[str]) -> None:
        """Follows the lines to their end, or to `quit`."""
        self._view.goal(self._session)
        self._again()
        for line in lines:
            if line == "quit":
                break
            try:
                self._follow(line)
            except (BadLine, BadAction, EpisodeOver) as e:
                self._view.error(str(e))
        self._session.close()

    def _follow(self, line: str) -> None:
        match line:
            case "help":
                self._view.help(self._session)
            case "tools":
                self._view.tools(self._session)
            case "state":
                self._view.state(self._session)
            case "undo":
                self._undo()
            case "again":
                self._again()
            case _:
                self._step(line)

    def _step(self, line: str) -> None:
        session = self._session
        if session.env.tools:
            action = read_call(line, session.env.tools)
        else:
            action = read_value(line, session.env.action_space)
        self._view.transition(session, session.step(action))

    def _again(self) -> None:
        observation, _ = self._session.reset(seed=self._seed)
        self._view.observation(self._session, observation)

    def _undo(self) -> None:
        before = self._session
        if before.steps == 0:
            raise BadLine("there is no step to undo")
        self._session = before.fork(before.steps - 1)
        before.close()
        self._view.undone(self._session)
