"""Statistics of scores: intervals, spreads, what repeats of a task say, and pairs.

Only numbers go in and come out: an episode that is not valid is left out by whoever counts, never
counted as 0. Where there is nothing to count the result is None, and never NaN.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

CONFIDENCE = 0.95

POWER = 0.8
"""How often a difference should be found that is there."""

RESAMPLES = 9_999

_HUGE = 2.0**960
"""Numbers beyond it are added up as smaller ones: the greatest float is just below 2**1024."""

_BATCH = 2_000_000
"""Numbers that are drawn at once, so that many tasks take no more memory than few."""


class Proportion(NamedTuple):
    """How often something held.

    Attributes:
        held: How often it did.
        n: Of how many; 0: everything below is None.
        mean: `held / n`.
        standard_error: sqrt(mean * (1 - mean) / n), which is 0 at both ends: see the interval.
        low: Lower end of the Wilson 95 % interval.
        high: Its upper end.
    """

    held: int
    n: int
    mean: float | None
    standard_error: float | None
    low: float | None
    high: float | None


class Spread(NamedTuple):
    """Where numbers lie.

    Attributes:
        n: How many; 0: everything below is None.
        mean: Their mean.
        median: Their median.
        deviation: Their sample standard deviation; None for a single one, and where it is beyond
            the greatest float.
        lowest: The smallest.
        highest: The greatest.
    """

    n: int
    mean: float | None
    median: float | None
    deviation: float | None
    lowest: float | None
    highest: float | None


class Passes(NamedTuple):
    """What `k` tries at a task are worth, as a mean over tasks.

    Attributes:
        k: Number of tries.
        at_least_one: pass@k: chance that one of k tries succeeds; None: no task has k valid ones.
        all_of_them: pass^k: chance that all k tries succeed; None likewise.
        tasks: Tasks with k valid tries or more, over which the means are taken.
        tasks_in_all: Tasks with any number of them.
    """

    k: int
    at_least_one: float | None
    all_of_them: float | None
    tasks: int
    tasks_in_all: int


def proportion(held: int, n: int) -> Proportion:
    """Estimates how often something holds.

    Raises:
        ValueError: `held` is not within 0 and `n`.
    """
    if not 0 <= held <= n:
        raise ValueError(f"expected 0 to {n} that hold, got {held}")
    if n == 0:
        return Proportion(0, 0, None, None, None, None)
    mean = held / n
    low, high = _wilson(held, n)
    return Proportion(held, n, mean, math.sqrt(mean * (1 - mean) / n), low, high)


def spread(values: Sequence[float]) -> Spread:
    """Describes finite numbers."""
    if not values:
        return Spread(0, None, None, None, None, None)
    lowest, highest = min(values), max(values)
    scale = _HUGE if max(-lowest, highest) > _HUGE else 1  # a power of two rounds nothing off
    scaled = values if scale == 1 else [value / scale for value in values]
    mean = min(max(statistics.fmean(scaled) * scale, lowest), highest)
    lower, upper = statistics.median_low(values), statistics.median_high(values)
    deviation = statistics.stdev(scaled) * scale if len(values) > 1 else math.inf
    return Spread(
        n=len(values),
        mean=mean,
        median=lower if lower == upper else lower / 2 + upper / 2,
        deviation=deviation if math.isfinite(deviation) else None,
        lowest=lowest,
        highest=highest,
    )


def pass_at(k: int, successes: int, n: int) -> float | None:
    """Chance that at least one of `k` tries succeeds, without bias, from `n` tries.

    Returns:
        1 - C(n - successes, k) / C(n, k); None where k is more than n.
    """
    return None if k > n else 1 - math.comb(n - successes, k) / math.comb(n, k)


def pass_all(k: int, successes: int, n: int) -> float | None:
    """Chance that all of `k` tries succeed, without bias, from `n` tries.

    Returns:
        C(successes, k) / C(n, k); None where k is more than n.
    """
    return None if k > n else math.comb(successes, k) / math.comb(n, k)


def passes(k: int, tries: Sequence[Sequence[bool]]) -> Passes:
    """Takes the means of pass@k and pass^k over tasks.

    Args:
        k: 1 or more.
        tries: For each task, whether each of its valid tries succeeded.
    """
    counts = [(sum(task), len(task)) for task in tries if len(task) >= k]
    one = [found for c, n in counts if (found := pass_at(k, c, n)) is not None]
    every = [found for c, n in counts if (found := pass_all(k, c, n)) is not None]
    return Passes(k, spread(one).mean, spread(every).mean, len(counts), len(tries))


def stable(tries: Sequence[Sequence[bool]]) -> Proportion:
    """How many of the tasks that were tried twice or more succeeded in every valid try."""
    repeated = [task for task in tries if len(task) > 1]
    return proportion(sum(all(task) for task in repeated), len(repeated))


def mcnemar(better: int, worse: int) -> float:
    """Exact two-sided McNemar test: how likely at least so uneven a split is by chance alone.

    Args:
        better: Pairs that differ one way.
        worse: Pairs that differ the other way.
    """
    if better + worse == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(better, better + worse).pvalue)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Bootstrap 95 % interval of a mean, by percentiles: the same for the same numbers.

    Returns:
        None where fewer than two numbers differ: then resampling shows nothing.
    """
    if len(set(values)) < 2:
        return None
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values, float),),
        np.mean,
        n_resamples=RESAMPLES,
        batch=max(1, _BATCH // len(values)),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)


def smallest_difference(n: int, differing: int) -> float | None:
    """The smallest difference of two success rates that `n` pairs show with a power of 0.8.

    By the exact McNemar test at 5 %, where as many pairs differ as were seen to, or, for a
    difference that needs more, all of them one way.

    Args:
        n: Pairs.
        differing: Those of them that differ.

    Returns:
        None where so few pairs can show no difference at all.
    """
    if mcnemar(n, 0) > 1 - CONFIDENCE:
        return None
    from scipy.optimize import brentq

    return float(brentq(lambda gain: _power(n, differing / n, gain) - POWER, 0, 1, xtol=1e-6))


def _power(n: int, differing: float, gain: float) -> float:
    """How often the test finds a difference of `gain` where this share of pairs differs."""
    import numpy as np
    from scipy.stats import binom

    share = max(differing, gain)
    one_way = (share + gain) / (2 * share) if share else 0.5
    pairs = np.arange(n + 1)
    # The most pairs of the rarer way with which the test still says that there is a difference.
    most = binom.ppf((1 - CONFIDENCE) / 2, pairs, 0.5)
    most -= binom.cdf(most, pairs, 0.5) > (1 - CONFIDENCE) / 2
    found = binom.cdf(most, pairs, one_way) + binom.cdf(most, pairs, 1 - one_way)
    return float(np.sum(binom.pmf(pairs, n, share) * found))


@lru_cache(maxsize=1024)
def _wilson(held: int, n: int) -> tuple[float, float]:
    from scipy.stats import binomtest  # takes half a second, which not every caller needs

    low, high = binomtest(held, n).proportion_ci(CONFIDENCE, method="wilson")
    return float(low), float(high)
