"""The typewriter that the other servers serve, and what every driver types.

It is no more than the rules: no check of arguments, no state hash, no log. The others are measured
with less work to do than Railgym's own.
"""

from typing import NamedTuple

STEPS = 200
"""Of an episode, so that papers, and with them observations, stay short."""

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TARGET = ALPHABET * 8
"""Longer than an episode, so that none ends by itself."""


class Typed(NamedTuple):
    """What one letter brought."""

    paper: str
    reward: float
    done: bool


class Paper:
    """A sheet of paper and a text to type on it."""

    def __init__(self) -> None:
        self.target = ""
        self.text = ""

    def begin(self, target: str) -> str:
        self.target, self.text = target, ""
        return self.text

    def type(self, letter: str) -> Typed:
        self.text += letter
        done = self.text == self.target
        return Typed(self.text, float(done), done or not self.target.startswith(self.text))
