"""Environments of a user's own, good and bad, for a server to host."""

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import threading
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np

from env_server.env import Options, ToolEnv, ToolError, tool

SECRET = "the secret is 4711"


class Count(gymnasium.Env):
    """Adds up its actions; a seed decides where it begins. It never ends."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(10)
        self.observation_space = gymnasium.spaces.Discrete(10**9)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sum = int(self.np_random.integers(1_000))
        return self.sum, {"options": options}

    def step(self, action):
        self.sum += int(action)
        return self.sum, float(action), False, False, {}

    def render(self):
        return str(self.sum)


class Ends(Count):
    """Ends as its action says: 1 terminates, 2 truncates, 3 does both; its infos tell steps."""

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed, options=options)
        self.steps = 0
        return observation, {"begun_at": observation}

    def step(self, action):
        observation, reward, _, _, _ = super().step(action)
        self.steps += 1
        return observation, reward, action in (1, 3), action in (2, 3), {"steps": self.steps}


class Broken(Count):
    """Fails as its action says, in ways in which environments fail."""

    RAISES = 1
    EXITS = 2
    BAD_INFO = 3
    HUGE_INFO = 4
    STOPS_ITERATION = 5

    def reset(self, *, seed=None, options=None):
        if options:
            raise RuntimeError(SECRET)
        return super().reset(seed=seed)

    def step(self, action):
        match int(action):
            case self.RAISES:
                raise ZeroDivisionError(SECRET)
            case self.EXITS:
                raise SystemExit(SECRET)
            case self.STOPS_ITERATION:
                next(iter(()))
        observation, reward, terminated, truncated, info = super().step(action)
        if action == self.BAD_INFO:
            info = {"object": object()}
        if action == self.HUGE_INFO:
            info = {"array": np.zeros(17 * 1024 * 1024, np.uint8)}
        return observation, reward, terminated, truncated, info

    def render(self):
        raise OSError(SECRET)

    def close(self):
        raise OSError(SECRET)


class Unmakeable(Count):
    """Cannot be made at all."""

    def __init__(self, render_mode=None):
        raise RuntimeError(SECRET)


class Slow(Count):
    """Takes a tenth of a second for each that its action adds."""

    def step(self, action):
        time.sleep(int(action) / 10)
        return super().step(action)


class Stuck(Count):
    """Never comes back from a step."""

    def step(self, action):
        threading.Event().wait()


class Rogue(Count):
    """Does as its action says what harms the process that it runs in."""

    LOOPS = 1
    SLEEPS = 2
    SWELLS = 3
    EXITS = 4
    CRASHES = 5
    DIES = 6
    SPEAKS = 7

    def step(self, action):
        match int(action):
            case self.LOOPS:
                while True:
                    pass
            case self.SLEEPS:
                time.sleep(3_600)
            case self.SWELLS:
                self.hoard = [bytearray(64 * 1024**2) for _ in range(10_000)]
            case self.EXITS:
                os._exit(0)
            case self.CRASHES:
                ctypes.string_at(0)
            case self.DIES:
                os.kill(os.getpid(), signal.SIGKILL)
            case self.SPEAKS:
                for file in range(3, 64):  # one of them is the connection to the server
                    with contextlib.suppress(OSError):
                        os.write(file, b"d\0\0\0\4nonsense")
        return super().step(action)

    def render(self):
        time.sleep(3_600)


class Pid(Count):
    """Observes the id of the process that it runs in."""

    def step(self, action):
        super().step(action)
        return os.getpid(), 0.0, False, False, {}


class Begets(Count):
    """Starts a process of its own that never ends, observes its id, and hangs."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.child = subprocess.Popen(["sleep", "3600"])
        return self.child.pid, {}

    def step(self, action):
        threading.Event().wait()


class SlowStart(Count):
    """Takes a second to be made."""

    def __init__(self, render_mode=None):
        time.sleep(1)
        super().__init__(render_mode)


class OneThread(Count):
    """Belongs to the thread that made it, as a connection of sqlite3 does."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.thread = threading.get_ident()

    def reset(self, *, seed=None, options=None):
        self.check()
        return super().reset(seed=seed)

    def step(self, action):
        self.check()
        return super().step(action)

    def render(self):
        self.check()
        return super().render()

    def check(self):
        if threading.get_ident() != self.thread:
            raise RuntimeError("called by another thread")


class Chance(Count):
    """Is not deterministic: it draws from a source that no seed sets."""

    def step(self, action):
        _, reward, terminated, truncated, info = super().step(action)
        return secrets.randbelow(10**9), reward, terminated, truncated, info


class Reach(Count):
    """Takes two numbers of -1 to 1."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def step(self, action):
        self.sum += 1
        return self.sum, float(np.sum(action)), False, False, {}


class Mixed(Count):
    """Takes one value of many spaces together."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        one = gymnasium.spaces.Discrete(3)
        many = gymnasium.spaces.MultiDiscrete([2, 3])
        self.action_space = gymnasium.spaces.OneOf(
            [
                gymnasium.spaces.Dict({"a": one, "b": gymnasium.spaces.MultiBinary(2)}),
                gymnasium.spaces.Tuple([gymnasium.spaces.Text(3), many]),
                gymnasium.spaces.Sequence(one),
                gymnasium.spaces.Graph(gymnasium.spaces.Box(0, 1, (2,)), one),
            ]
        )

    def step(self, action):
        return super().step(1)


class NotesOptions(Options):
    title: str = "notes"


class Notes(ToolEnv):
    """Keeps lines of text, with tools."""

    OPTIONS = NotesOptions
    options: NotesOptions

    def _begin(self):
        self.lines = []
        self.number = int(self.np_random.integers(1_000_000))
        return {"title": self.options.title, "number": self.number}

    def state(self):
        return {"lines": self.lines, "number": self.number}

    @tool
    def write(self, line: str) -> int:
        """Adds a line.

        Args:
            line: At most ten characters.
        """
        if len(line) > 10:
            raise ToolError("the line is too long")
        self.lines.append(line)
        return len(self.lines)

    @tool
    def burn(self) -> str:
        """Fails by a mistake of its author."""
        raise KeyError(SECRET)
