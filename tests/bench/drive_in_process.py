"""Steps episodes in this process, one after the other: what a step costs without a server."""

import json
import statistics
import sys
import time

from paper import STEPS, TARGET

from env_server.episode import Episode, EpisodeSpec
from env_server.registry import Registry
from railgym.actions import ToolCall

CALLS = [ToolCall("type_letter", f'{{"letter":"{letter}"}}') for letter in TARGET[:STEPS]]
SPEC = EpisodeSpec("railgym/Typewriter-v1", options={"target": TARGET})


def play(envs: list, seconds: float) -> dict[str, float]:
    """Plays episodes in turn, 200 steps of one and then of the next."""
    latencies = []
    begin = time.perf_counter()
    number = 0
    while (before := time.perf_counter()) < begin + seconds:
        episode = Episode(SPEC, envs[number % len(envs)])
        for step, call in enumerate(CALLS, start=1):
            before = time.perf_counter()
            reply = episode.step(step, call)
            latencies.append(time.perf_counter() - before)
        assert json.loads(reply.transition.observation)["result"] == TARGET[:STEPS]
        number += 1
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "steps": len(latencies),
        "seconds": time.perf_counter() - begin,
        "p50": cuts[49],
        "p99": cuts[98],
    }


def main() -> None:
    """Plays rounds as stdin asks for them, as driving.py does."""
    entry = Registry().env(SPEC.env_id)
    envs = [entry.make() for _ in range(int(sys.argv[2]))]
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(play(envs, float(line))), flush=True)


if __name__ == "__main__":
    main()
