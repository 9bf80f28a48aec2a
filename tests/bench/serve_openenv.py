"""The typewriter served by OpenEnv over its WebSocket.

The argument says how it steps: "async" in the event loop, which is its best case, or "sync" on the
thread that OpenEnv keeps for each session.
"""

import sys

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from paper import Paper
from serving import serve

MAX_SESSIONS = 10_000


class Letter(Action):
    letter: str


class Sheet(Observation):
    paper: str


class Typewriter(Environment[Letter, Sheet, State]):
    """Steps on a thread."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._paper = Paper()

    def reset(self, seed=None, episode_id=None, target="", **kwargs):
        return Sheet(paper=self._paper.begin(target))

    def step(self, action, timeout_s=None, **kwargs):
        paper, reward, done = self._paper.type(action.letter)
        return Sheet(paper=paper, reward=reward, done=done)

    @property
    def state(self):
        return State()


class AsyncTypewriter(Typewriter):
    """Steps in the event loop."""

    async def reset_async(self, seed=None, episode_id=None, target="", **kwargs):
        return self.reset(target=target)

    async def step_async(self, action, timeout_s=None, **kwargs):
        return self.step(action)


ENVS = {"async": AsyncTypewriter, "sync": Typewriter}


if __name__ == "__main__":
    env = ENVS[sys.argv[1]]
    serve(create_fastapi_app(env, Letter, Sheet, max_concurrent_envs=MAX_SESSIONS), "openenv")
