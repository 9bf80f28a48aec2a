"""The first fault of an episode: which of four capabilities broke first, decided without a judge.

*Understanding* is saying rightly what is wanted, *selection* is picking the right tool,
*interpretation* is using what came back, *convergence* is coming to an end.

Step by step, the first of these decides:

    at a step                                                      capability
    `format_error`, `bad_arguments`, `tool_error`                  understanding
    `unknown_tool`, `not_allowed`, any call to a distractor        selection
    `truncated_output`, `empty_response`, `refusal`:
      an end that is none                                          convergence
    the same call in the same state, which can bring nothing new   interpretation
    the final answer at the last step allowed, where the gold
      solution needs fewer                                         convergence
    of a failure, the first call that leaves the states of the
      gold solution: by the tool that is next there, with other
      arguments                                                    understanding
      by another tool                                              selection
      where the gold solution has no call left                     convergence

Where an episode failed and no step decides, its end does; the first of these:

    at the end                                                     capability
    the time was up                                                convergence
    no step was taken                                              none can tell
    a tool was called that `must_not_call` names                   selection
    only `required_fields` or `max_calls` does not hold            convergence
    no final answer, though the goal's state and last result
      were reached                                                 convergence
    fewer calls without a fault than the gold solution has,
      which is a shortest way: a needed one is missing             selection
    the last result of the gold solution was seen                  interpretation
    a tool of the gold solution was never called                   selection
    else: the right tools with arguments that miss the goal        understanding

A success has the first fault that it recovered from, or none. Where no gold solution fits, rules
that need one are left out. The rules follow the way of the gold solution; for an agent that goes
another way and fails, they are a guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from env_server.env import FaultCode
from env_server.scoring.replayed import Gold, Replayed


class Capability(StrEnum):
    """What broke first."""

    UNDERSTANDING = "understanding"
    SELECTION = "selection"
    INTERPRETATION = "interpretation"
    CONVERGENCE = "convergence"


BY_CODE: dict[FaultCode, Capability] = {
    "format_error": Capability.UNDERSTANDING,
    "bad_arguments": Capability.UNDERSTANDING,
    "tool_error": Capability.UNDERSTANDING,
    "unknown_tool": Capability.SELECTION,
    "not_allowed": Capability.SELECTION,
    "truncated_output": Capability.CONVERGENCE,
    "empty_response": Capability.CONVERGENCE,
    "refusal": Capability.CONVERGENCE,
}


def first_fault(run: Replayed, end_reason: str | None = None) -> Capability | None:
    """Names the capability that broke first.

    Args:
        run: The episode.
        end_reason: How it ended by its record, where something outside ended it.

    Returns:
        None where nothing broke, and where no rule can tell.
    """
    events = list(_events(run))
    if events:
        return min(events, key=lambda event: event[0])[1]
    if run.task is None or run.success:
        return None
    return Capability.CONVERGENCE if end_reason == "time_limit" else _at_end(run)


def _events(run: Replayed) -> Iterator[tuple[int, Capability]]:
    """What went wrong at single steps; of two at one step, what weighs more comes first."""
    for step, code in run.faults.items():
        yield step, Capability.SELECTION if step in run.distracted else BY_CODE[code]
    for step in run.repeated:
        yield step, Capability.INTERPRETATION
    if run.gold is not None:
        if _is_late(run, run.gold):
            yield run.episode.latest, Capability.CONVERGENCE
        if run.gold.changes_state and not run.success:
            yield from _astray(run, run.gold)


def _is_late(run: Replayed, gold: Gold) -> bool:
    """Whether the final answer came with the last step allowed, without need."""
    if run.task is None or run.episode.end != "final":
        return False
    return run.episode.latest == run.task.max_steps > gold.steps


def _astray(run: Replayed, gold: Gold) -> Iterator[tuple[int, Capability]]:
    """The first call, if any, that leaves the states of the gold solution."""
    for call in run.episode.calls:
        if run.replies[call.step - 1].state_hash in gold.states:
            continue
        before = run.state_before(call.step)
        wanted = [other.name for other in gold.calls if gold.states[other.step - 1] == before]
        if not wanted:
            yield call.step, Capability.CONVERGENCE
        elif call.name in wanted:
            yield call.step, Capability.UNDERSTANDING
        else:
            yield call.step, Capability.SELECTION
        return


def _at_end(run: Replayed) -> Capability | None:
    if not run.replies:
        return None
    broken = {name for name, holds in (run.episode.verdict or {}).items() if not holds}
    if "must_not_call" in broken:
        return Capability.SELECTION
    if broken and broken <= {"required_fields", "max_calls"}:
        return Capability.CONVERGENCE
    return None if run.gold is None else _beside_gold(run, run.gold)


def _beside_gold(run: Replayed, gold: Gold) -> Capability:
    last = gold.observations[gold.calls[-1].step - 1] if gold.calls else None
    learned = last is None or last in [reply.transition.observation for reply in run.replies]
    arrived = run.episode.state_hash == gold.states[-1] and (learned or gold.changes_state)
    if arrived and run.episode.end != "final":
        return Capability.CONVERGENCE
    done = [call.name for call in run.episode.calls if call.fault is None]
    if len(done) < len(gold.calls):
        return Capability.SELECTION
    if learned:
        return Capability.INTERPRETATION
    if {call.name for call in gold.calls} - set(done):
        return Capability.SELECTION
    return Capability.UNDERSTANDING
