"""Forks an episode: its first steps are played again, in the environment of another session.

The parent stays as it is. Nothing is shared, so that the copy lives on without it.
"""

from __future__ import annotations

from env_server.errors import BadRequest
from env_server.service.hosting import Progress
from env_server.service.player import Player
from railgym.v1 import episode_pb2


async def copy(parent: Player, child: Player, step: int | None) -> None:
    """Begins an episode with a copy of the first steps of another one.

    Args:
        parent: Whose latest episode is copied.
        child: A new one.
        step: How many; None: all.

    Raises:
        NotReset: The parent has no episode.
        EpisodeOver: Its episode was abandoned.
        BadRequest: Its episode has not come to that step.
        EnvError: The environment failed, or does not do the same again.
    """
    original = parent.running()
    steps = _steps(original, step)
    origin = episode_pb2.ForkOrigin(episode_id=parent.episode_id, step=steps)
    await child.begin(original.spec, origin)
    for number, action in enumerate(parent.received(steps), start=1):
        await child.step(0, number, action)
    if steps == original.latest and child.running().state_hash != original.state_hash:
        raise child.env_error("it is not deterministic: its copy has another state")


def _steps(original: Progress, step: int | None) -> int:
    if step is None or step <= original.latest:
        return original.latest if step is None else step
    raise BadRequest(
        f"step: expected at most {original.latest}, where the episode stands, got {step}",
        field="step",
        expected=f"at most {original.latest}",
        got=step,
    )
