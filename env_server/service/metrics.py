"""What a server counts, for Prometheus: names, labels and buckets, and the page that shows them.

Every label comes from a closed set (environments of the registry, fault codes, reasons, RPCs), so
that no client can make series. It knows no session and no gRPC; who counts what stands where it
happens. Each server has a registry of its own.
"""

from __future__ import annotations

import contextlib
import platform
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Info,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from env_server.scoring.replay import Outcome
from railgym._version import __version__
from railgym.actions import FaultCode
from railgym.codec import end_reason_from_proto
from railgym.v1 import env_service_pb2, episode_pb2, episode_service_pb2

STEP_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
"""Upper bounds: a bundled environment takes less than the first, a foreign one may take long."""

MISTAKE = '{"error":'
"""How the observation of every mistake begins: to look into an info costs more than all else."""

END_REASONS = tuple(
    reason
    for value in episode_pb2.EndReason.values()
    if (reason := end_reason_from_proto(value)) is not None
)

RPCS = frozenset(
    method.name
    for file in (env_service_pb2, episode_service_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)


class Metrics:
    """Everything that one server counts.

    Attributes:
        registry: All of it, to be shown.
        sessions_created: Sessions that were opened or forked; those taken up from the log are not.
        sessions_ended: By reason.
        log_bytes: Written to the log.
        log_errors: Writes and flushes that the disk refused.
        replay_mismatches: Replays that did not come out as recorded, by outcome.
    """

    def __init__(self, env_ids: Iterable[str] = ()) -> None:
        """Begins at zero.

        Args:
            env_ids: Shown from the start, though nothing has happened in them.
        """
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        self.sessions_created = counter(
            "railgym_sessions_created", "Sessions that were opened or forked."
        )
        self.sessions_ended = counter(
            "railgym_sessions_ended", "Sessions that ended, by reason.", ["reason"]
        )
        self.log_bytes = counter("railgym_log_bytes", "Bytes written to the episode log.")
        self.log_errors = counter(
            "railgym_log_errors",
            "Writes of the episode log that the disk refused, and calls refused as it is short.",
        )
        self.replay_mismatches = counter(
            "railgym_replay_mismatches",
            "Replays, to score or to resume, that did not come out as recorded.",
            ["outcome"],
        )
        self._rpc_errors = counter(
            "railgym_rpc_errors", "Calls, and rows of a Rollout, that failed.", ["rpc", "reason"]
        )
        self._sessions = Gauge(
            "railgym_sessions", "Live sessions.", ["env"], registry=self.registry
        )
        self._faults = counter("railgym_faults", "Mistakes of agents.", ["env", "code"])
        self._episodes_ended = counter(
            "railgym_episodes_ended", "Episodes that ended, by reason.", ["env", "reason"]
        )
        self._envs: dict[str, EnvMetrics] = {}
        self.registry.register(_Steps(self._envs))
        self._show_from_the_start(env_ids)

    def env(self, env_id: str) -> EnvMetrics:
        """What is counted of one environment, which must be one of the server's registry."""
        if env_id not in self._envs:
            self._envs[env_id] = EnvMetrics(
                sessions=self._sessions.labels(env_id),
                faults={code: self._faults.labels(env_id, code) for code in get_args(FaultCode)},
                ends={end: self._episodes_ended.labels(env_id, end) for end in END_REASONS},
            )
        return self._envs[env_id]

    def rpc_error(self, rpc: str, reason: str) -> None:
        """Counts a call that failed.

        Args:
            rpc: Its name, for instance "Step"; one that Railgym does not have is "other".
            reason: An ErrorReason without its prefix.
        """
        self._rpc_errors.labels(rpc if rpc in RPCS else "other", reason).inc()

    def _show_from_the_start(self, env_ids: Iterable[str]) -> None:
        build = Info("railgym_build", "What serves.", registry=self.registry)
        build.info({"version": __version__, "python": platform.python_version()})
        ProcessCollector(registry=self.registry)
        for reason in END_REASONS:
            self.sessions_ended.labels(reason)
        for outcome in (Outcome.DIVERGED, Outcome.UNREPLAYABLE):
            self.replay_mismatches.labels(outcome)
        for env_id in env_ids:
            self.env(env_id)


class EnvMetrics:
    """What is counted of one environment.

    A step has no time: its labels are resolved, and it is counted by plain numbers, in the event
    loop only, which `_Steps` makes a histogram of when somebody looks.

    Attributes:
        sessions: Live ones.
        steps: By the bucket of `STEP_SECONDS` that they fell into; the last is for slower ones.
        seconds: That they took together.
    """

    def __init__(
        self,
        *,
        sessions: Gauge,
        faults: dict[str, Counter],
        ends: dict[str, Counter],
    ) -> None:
        """Counts with these: faults by code, and ends of episodes by reason."""
        self.sessions = sessions
        self.steps = [0] * (len(STEP_SECONDS) + 1)
        self.seconds = 0.0
        self._faults = faults
        self._ends = ends

    def stepped(self, transition: episode_pb2.Transition, seconds: float) -> None:
        """Counts a step, and the agent's mistake if it was one."""
        self.steps[bisect_left(STEP_SECONDS, seconds)] += 1
        self.seconds += seconds
        if transition.observation.json.startswith(MISTAKE) and "fault" in transition.info:
            fault = self._faults.get(transition.info["fault"].text)
            if fault is not None:
                fault.inc()

    def episode_ended(self, reason: str) -> None:
        """Counts the end of an episode."""
        self._ends[reason].inc()


class _Steps(Collector):
    """Shows the steps of all environments, and how long they took."""

    def __init__(self, envs: Mapping[str, EnvMetrics]) -> None:
        self._envs = envs

    def collect(self) -> Iterator[Metric]:
        """Makes the two metrics from what was counted."""
        steps = CounterMetricFamily(
            "railgym_steps", "Steps taken; repeats are not.", labels=["env"]
        )
        seconds = HistogramMetricFamily(
            "railgym_step_seconds", "Time that the environment took for a step.", labels=["env"]
        )
        for env_id, env in list(self._envs.items()):
            up_to = list(accumulate(env.steps))
            steps.add_metric([env_id], up_to[-1])
            bounds = [*map(floatToGoString, STEP_SECONDS), "+Inf"]
            seconds.add_metric([env_id], list(zip(bounds, up_to, strict=True)), env.seconds)
        yield steps
        yield seconds


@contextlib.contextmanager
def shown(metrics: Metrics, address: str) -> Iterator[str]:
    """Shows the metrics on http://ADDRESS/metrics while the block runs.

    Args:
        metrics: What to show.
        address: "host:port"; port 0 takes a free one.

    Yields:
        The address, with its real port.

    Raises:
        OSError: It is in use, or not one of this machine.
    """
    host, _, port = address.rpartition(":")
    page, thread = start_http_server(int(port), host.strip("[]"), metrics.registry)
    try:
        yield f"{host}:{page.server_port}"
    finally:
        page.shutdown()
        page.server_close()
        thread.join()
