"""Metrics: pure functions of a replayed episode, by name.

Each gives a number, or None where it does not apply. None of them asks a model. What LangChain
Benchmarks measures stands in `env_server.scoring.langchain`.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable
from functools import partial

from env_server.env import FaultCode
from env_server.scoring import langchain
from env_server.scoring.replayed import Replayed

Metric = Callable[[Replayed], float | None]


def success(run: Replayed) -> float | None:
    """1 where every validator of the task held, else 0. None without a task."""
    return None if run.task is None else float(run.success)


def total_reward(run: Replayed) -> float | None:
    """Sum of the rewards, 0 without a step. None where the sum is not finite."""
    try:
        total = math.fsum(reply.transition.reward for reply in run.replies)
    except (OverflowError, ValueError):  # of finite rewards, or of both infinities
        return None
    return total if math.isfinite(total) else None


def final_state(run: Replayed) -> float | None:
    """1 where the episode leaves the state that the gold solution leaves, else 0.

    None where no gold solution fits. Reads leave no trace in it: it says nothing of the way.
    """
    if run.gold is None:
        return None
    return float(run.episode.state_hash == run.gold.states[-1])


def answer(run: Replayed) -> float | None:
    """1 where every validator of the answer held, else 0; 0 too where no answer was given.

    None for a task that does not look at the answer.
    """
    return None if run.answer_holds is None else float(run.answer_holds)


def trajectory(run: Replayed) -> float | None:
    """1 for a success without a fault and with no more tool calls than the gold solution, else 0.

    Any way as short as the gold solution counts. None where no gold solution fits.
    """
    if run.gold is None:
        return None
    short = len(run.episode.calls) <= len(run.gold.calls)
    return float(run.success and not run.faults and short)


def step_ratio(run: Replayed) -> float | None:
    """Steps over those of the gold solution, the final answers included; 1 is the shortest way.

    None without success, since giving up at once is no short way, and where no gold solution fits.
    """
    if run.gold is None or not run.success:
        return None
    return run.episode.latest / run.gold.steps


def steps(run: Replayed) -> float:
    """Steps taken, the final answer and those with faults included."""
    return float(run.episode.latest)


def gold_steps(run: Replayed) -> float | None:
    """Steps of the gold solution, the final answer included. None where none fits."""
    return None if run.gold is None else float(run.gold.steps)


def tool_calls(run: Replayed) -> float:
    """Calls to tools, those with faults included."""
    return float(len(run.episode.calls))


def faults(run: Replayed) -> float:
    """Steps with a fault."""
    return float(len(run.faults))


def repeated_calls(run: Replayed) -> float:
    """Calls that were made before with equal arguments in the same state."""
    return float(len(run.repeated))


def faults_of(code: FaultCode, run: Replayed) -> float | None:
    """Steps with a fault of this code. None where there is none."""
    return float(list(run.faults.values()).count(code)) or None


METRICS: dict[str, Metric] = {
    "success": success,
    "total_reward": total_reward,
    "final_state": final_state,
    "answer": answer,
    "trajectory": trajectory,
    "step_ratio": step_ratio,
    "steps": steps,
    "gold_steps": gold_steps,
    "tool_calls": tool_calls,
    "faults": faults,
    "repeated_calls": repeated_calls,
    **{f"faults/{code}": partial(faults_of, code) for code in typing.get_args(FaultCode)},
    **{f"langchain/{name}": metric for name, metric in langchain.METRICS.items()},
}


def measure(run: Replayed) -> dict[str, float]:
    """Every metric that applies to an episode, by name."""
    found = {name: metric(run) for name, metric in METRICS.items()}
    return {name: value for name, value in found.items() if value is not None}
