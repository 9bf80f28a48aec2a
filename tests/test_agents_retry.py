"""How a model is asked again, and how many calls of one are out at once."""

import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railgym.agents.model import Answer, CutOff, Failure, Usage
from railgym.agents.retry import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    MAX_ATTEMPTS,
    MAX_MESSAGE,
    MAX_SECONDS,
    RetryPolicy,
    failure_of,
    retry_after,
)
from railgym.agents.throttle import START, Throttle

ANSWER = Answer((), "yes", "end", "stop", Usage(1), "r1", "m")


class Clock:
    def __init__(self):
        self.now = 0.0
        self.waits = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


class Model:
    """Fails as often as it is told to, each attempt taking two seconds, and then answers."""

    errors = (OSError,)

    def __init__(self, clock, *failures):
        self.clock = clock
        self.rest = list(failures)
        self.asked = 0

    def ask(self):
        self.asked += 1
        self.clock.now += 2
        if self.rest:
            raise CutOff("as told")
        return ANSWER

    def failure(self, error):
        assert isinstance(error, CutOff)
        return self.rest.pop(0)


def ask(*failures, draw=1.0, throttle=None, **budget):
    clock = Clock()
    model = Model(clock, *failures)
    policy = RetryPolicy(**budget, clock=clock, sleep=clock.sleep, draw=lambda: draw)
    asked = policy.ask(model, model, throttle or Throttle(clock=clock))
    return asked, model, clock


def failed(status=500, **headers):
    headers = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return failure_of(status, "test_error", "no", headers=headers)


def test_an_answer_at_once_is_all_latency():
    asked, _, clock = ask()
    assert asked == (ANSWER, 2, 0, ())
    assert clock.waits == []


def test_waits_double_up_to_a_bound_and_are_no_latency():
    asked, _, clock = ask(*[failed()] * 8)
    assert clock.waits == [1, 2, 4, 8, 16, 32, LONGEST_SECONDS, LONGEST_SECONDS]
    assert [retry.waited for retry in asked.retries] == clock.waits
    assert (asked.latency, asked.queue) == (2, 8 * 2 + sum(clock.waits))


@given(draw=st.floats(0, 1), number=st.integers(1, MAX_ATTEMPTS - 1))
@settings(deadline=None, max_examples=60)
def test_jitter_is_full(draw, number):
    _, _, clock = ask(*[failed()] * number, draw=draw)
    bounds = [min(LONGEST_SECONDS, FIRST_SECONDS * 2**n) for n in range(number)]
    assert clock.waits == [draw * bound for bound in bounds]


def test_what_the_provider_asks_to_wait_is_the_least():
    _, _, clock = ask(*[failed(429, retry_after=7)] * 3, draw=0.25)
    assert clock.waits == [7.25, 7.5, 8]


def test_a_provider_that_asks_for_no_wait_is_given_one():
    _, _, clock = ask(*[failed(429, retry_after=0)] * 3)
    assert clock.waits == [1, 2, 4]


def test_attempts_have_a_budget():
    asked, model, _ = ask(*[failed()] * 99)
    assert model.asked == MAX_ATTEMPTS
    assert isinstance(asked.result, Failure)
    assert len(asked.retries) == MAX_ATTEMPTS - 1
    assert asked.latency == 0


def test_waiting_has_a_budget():
    asked, model, clock = ask(*[failed(429, retry_after=250)] * 99)
    assert model.asked == 3
    assert sum(clock.waits) <= MAX_SECONDS
    assert asked.result.status == 429


def test_whoever_is_told_to_wait_beyond_the_budget_says_so():
    asked = ask(failed(429, retry_after=3_600))
    budget = "and 600 s are left of the 600 s that a call may wait"
    assert asked[0].result.message.endswith(f"(asked to wait 3600 s, {budget})")
    refused = ask(failed(400, retry_after=3_600))
    assert "asked to wait" not in refused[0].result.message


def test_while_a_call_waits_the_throttle_tells_of_its_trouble():
    throttle, clock = Throttle(), Clock()
    model, told = Model(clock, failed(500), failed(503)), []

    def sleep(seconds):
        told.append(throttle.trouble)
        clock.sleep(seconds)

    RetryPolicy(clock=clock, sleep=sleep, draw=lambda: 0.0).ask(model, model, throttle)
    message = failed(500).message
    assert told == [f"{message}, attempt {n} of {MAX_ATTEMPTS}" for n in (1, 2)]
    assert throttle.trouble == ""


def test_a_wait_beyond_the_budget_is_not_begun():
    _, model, clock = ask(failed(429, retry_after=MAX_SECONDS + 1))
    assert (model.asked, clock.waits) == (1, [])


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_what_cannot_pass_is_asked_once(status):
    asked, model, clock = ask(failed(status))
    assert (model.asked, clock.waits, asked.retries) == (1, [], ())


def test_an_error_that_is_none_of_the_providers_is_not_swallowed():
    class Broken(Model):
        def ask(self):
            raise ZeroDivisionError

    throttle = Throttle()
    with pytest.raises(ZeroDivisionError):
        RetryPolicy().ask(Broken(Clock()), Broken(Clock()), throttle)
    with throttle.slot(), throttle.slot(), throttle.slot():  # all are free again
        pass


@pytest.mark.parametrize(
    ("status", "kind", "slow"),
    [
        (None, "retry", False),
        (408, "retry", False),
        (409, "retry", False),
        (429, "retry", True),
        (500, "retry", False),
        (502, "retry", False),
        (503, "retry", True),
        (504, "retry", False),
        (529, "retry", True),
        (400, "refused", False),
        (413, "refused", False),
        (422, "refused", False),
        (401, "stop", False),
        (402, "stop", False),
        (403, "stop", False),
        (404, "stop", False),
    ],
)
def test_failures_are_sorted_by_status(status, kind, slow):
    failure = failure_of(status, "x", "y")
    assert (failure.kind, failure.slow_down, failure.status) == (kind, slow, status)
    like = failure_of(200, "x", "y", like=status) if status else failure
    assert (like.kind, like.slow_down) == (kind, slow)


def test_a_long_message_is_cut():
    assert len(failure_of(500, "x", "<html>" * 10_000).message) <= MAX_MESSAGE + 3


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
    ],
)
def test_retry_after_is_read(headers, seconds):
    assert retry_after(headers) == seconds


def test_retry_after_may_be_a_date():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 55 < retry_after({"retry-after": date}) <= 60


def test_a_throttle_begins_with_few():
    assert (START, Throttle().limit, Throttle(maximum=2).limit) == (3, 3, 2)
    with pytest.raises(ValueError, match="at least 1"):
        Throttle(maximum=0)


def test_a_throttle_halves_once_for_calls_that_were_out_together():
    throttle = Throttle(maximum=8)
    work(throttle, calls=200, threads=16)
    with throttle.slot() as a, throttle.slot() as b:
        a.slow_down(0)
        with throttle.slot() as c:
            b.slow_down(0)
            assert throttle.limit == 4
            c.slow_down(0)
    assert throttle.limit == 2


def test_a_throttle_never_halves_below_one():
    throttle = Throttle()
    with throttle.slot() as a:
        a.slow_down(0)
    with throttle.slot() as c:
        c.slow_down(0)
    assert throttle.limit == 1


def test_a_throttle_without_waiting_calls_does_not_grow():
    throttle = Throttle()
    for _ in range(20):
        with throttle.slot() as slot:
            slot.went_well()
    assert throttle.limit == START


def work(throttle, calls, threads, fail=lambda number: False):
    """Makes calls on many threads; gives the most that were out at once, and all limits."""
    lock, out, most, limits, left = threading.Lock(), 0, 0, [], list(range(calls))

    def one():
        nonlocal out, most
        while True:
            with lock:
                if not left:
                    return
                number = left.pop()
            with throttle.slot() as slot:
                with lock:
                    out += 1
                    most = max(most, out)
                time.sleep(0.001)
                with lock:
                    out -= 1
                if fail(number):
                    slot.slow_down(0)
                else:
                    slot.went_well()
                limits.append(throttle.limit)

    pool = [threading.Thread(target=one) for _ in range(threads)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    return most, limits


def test_a_healthy_throttle_grows_to_its_maximum_and_not_beyond():
    throttle = Throttle(maximum=8)
    most, limits = work(throttle, calls=200, threads=16)
    assert throttle.limit == max(limits) == 8
    assert START <= most <= 8
    assert throttle.waiting == 0


def test_a_throttle_grows_again_after_it_was_slowed():
    throttle = Throttle(maximum=8)
    _, limits = work(throttle, calls=300, threads=16, fail=lambda number: number == 250)
    assert min(limits) < max(limits)
    assert throttle.limit == 8


def test_a_pause_holds_for_every_call():
    throttle = Throttle()
    with throttle.slot() as slot:
        slot.slow_down(0.2)
    began = time.monotonic()
    with throttle.slot():
        assert time.monotonic() - began > 0.15


def test_calls_that_wait_are_counted():
    throttle = Throttle(maximum=1)
    entered = threading.Event()

    def wait():
        with throttle.slot():
            entered.set()

    with throttle.slot():
        thread = threading.Thread(target=wait)
        thread.start()
        while throttle.waiting != 1:
            time.sleep(0.001)
        assert not entered.is_set()
    thread.join()
    assert (entered.is_set(), throttle.waiting) == (True, 0)


@pytest.mark.parametrize("seconds", [MAX_SECONDS + 1, 86_400, 1e308])
def test_a_wait_beyond_the_budget_holds_up_no_other_call(seconds):
    clock = Clock()
    throttle = Throttle(clock=clock)
    ask(failed(429, retry_after=seconds), throttle=throttle)
    assert throttle.limit == START // 2
    done = threading.Event()

    def another():
        with throttle.slot():
            done.set()

    threading.Thread(target=another, daemon=True).start()
    assert done.wait(2)


def test_a_call_that_waits_to_be_retried_holds_no_slot_and_slows_the_others():
    clock = Clock()
    throttle = Throttle(clock=clock)

    class Watching(Model):
        def ask(self):
            limits.append(throttle.limit)
            return super().ask()

    limits = []
    model = Watching(clock, failed(429, retry_after=5))

    def sleep(seconds):
        clock.sleep(seconds)
        with throttle.slot(), pytest.raises(AssertionError):  # the only one, of one
            raise AssertionError

    policy = RetryPolicy(clock=clock, sleep=sleep, draw=lambda: 0.5)
    assert policy.ask(model, model, throttle).result == ANSWER
    assert limits == [3, 1]
