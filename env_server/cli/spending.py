"""What models have used so far, as agents claim it: calls, tokens, money, waiting.

Where a model has no price nothing is known of its cost, which is said and never taken for 0.
Nothing here is a score: those are made from the log.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from env_server.scoring.prices import Prices


@dataclass(slots=True)
class Use:
    """What one agent used, or several.

    Attributes:
        calls: Of a model.
        tokens: In all, as far as the provider said.
        usd: What is known of the cost.
        priced: Calls whose cost is known.
        unpriced: Calls that used something whose cost is not known.
        queued: Seconds of waiting, for the throttle and for the provider.
    """

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    priced: int = 0
    unpriced: int = 0
    queued: float = 0.0

    @property
    def cost(self) -> float | None:
        """What is known of the cost; None: nothing, which is another thing than 0."""
        return self.usd if self.priced else None


class Spending:
    """Adds up claims. Threads may share it."""

    def __init__(self, prices: Prices) -> None:
        """Begins with nothing."""
        self._prices = prices
        self._lock = threading.Lock()
        self._by_agent: defaultdict[str, Use] = defaultdict(Use)

    def add(self, agent: str, claim: Mapping[str, Any]) -> None:
        """Takes a claim; one of something else than a model call counts for nothing."""
        from env_server.scoring.claims import BUCKETS, read_call

        call = read_call(claim)
        if call is None:
            return
        cost = self._prices.cost_of(claim)
        tokens = sum(getattr(call.usage, bucket) for bucket in BUCKETS)
        used = bool(tokens or call.usage.unmetered)
        with self._lock:
            use = self._by_agent[agent]
            use.calls += 1
            use.tokens += tokens
            use.usd += cost or 0.0
            use.priced += used and cost is not None
            use.unpriced += used and cost is None
            use.queued += (call.queue_ms or 0.0) / 1_000

    def add_scored(self, agent: str, metrics: Mapping[str, float]) -> None:
        """Takes an episode whose claims are elsewhere, by the metrics of its score."""
        calls = int(metrics.get("model_calls", 0))
        if not calls:
            return
        with self._lock:
            use = self._by_agent[agent]
            use.calls += calls
            use.tokens += int(metrics.get("total_tokens", 0))
            use.usd += metrics.get("cost_usd", 0.0)
            use.priced += calls if "cost_usd" in metrics else 0
            use.unpriced += 0 if "cost_usd" in metrics else calls
            use.queued += metrics.get("queue_ms", 0.0) / 1_000

    def by_agent(self) -> dict[str, Use]:
        """What each agent used that has called a model."""
        with self._lock:
            return {agent: replace(use) for agent, use in sorted(self._by_agent.items())}

    def total(self) -> Use:
        """What all of them used together."""
        uses = self.by_agent().values()
        return Use(*(sum(getattr(use, field.name) for use in uses) for field in fields(Use)))


def without_price(agents: Mapping[str, Mapping[str, Any]], prices: Prices) -> list[str]:
    """Those agents whose model has no price, so that no budget can hold them.

    Args:
        agents: What each is known by, see `keys.identity`.
        prices: Of models.
    """
    usage = {"input": 1, "output": 1}
    return [
        name
        for name, known_by in agents.items()
        if "describe" in known_by
        and prices.cost_of({**known_by["describe"], "kind": "model_call", "usage": usage}) is None
    ]
