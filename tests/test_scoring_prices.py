"""What claimed tokens cost: exactly, from a dated table, and unknown where it is unknown."""

import io
import json
import re
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import Play, letters, make_task, write_log
from rich.console import Console
from typer.testing import CliRunner

from env_server.cli.app import app
from env_server.cli.exits import Exit
from env_server.registry import Registry
from env_server.scoring.claims import BUCKETS, add
from env_server.scoring.prices import (
    UNKNOWN,
    Price,
    Prices,
    PricesError,
    Table,
    bundled,
    prices_kept,
    prices_with,
    read_table,
)
from env_server.scoring.saved import read_scores
from env_server.scoring.score import score_log
from env_server.scoring.summary import summarise, write_scores
from env_server.scoring.table import notes, use_table
from railgym.scores import ModelUsage

DOG = make_task()
REGISTRY = Registry({DOG.task_id: DOG})
OWN = """
name = "mine"
date = 2026-12-01
source = "an invoice"
price = [
  { provider = "local", model = "my-*", input = 0.25, output = 1 },
  { provider = "anthropic", model = "claude-opus-4-5", input = 100, output = 100 },
]
"""
WITH_CACHES = OWN.replace("output = 100", "output = 100, cache_read = 1, cache_write_5m = 1")


def used(model="claude-opus-4-5-20251101", provider="anthropic", **tokens):
    prompt = sum(count for name, count in tokens.items() if name not in ("output", "reasoning"))
    counts = {"calls": 1, "smallest_prompt": prompt, "largest_prompt": prompt, **tokens}
    return ModelUsage(provider, model, **counts)


def cost(*usages, prices=None):
    return (prices or prices_with()).cost(usages)


def claim(model="claude-opus-4-5", provider="anthropic", **more):
    usage = {"input": 10, "cache_read": 9000, "cache_write_5m": 1000, "output": 50}
    return {"kind": "model_call", "provider": provider, "model": model, "usage": usage, **more}


def test_anthropics_buckets_cost_what_a_hand_computes():
    usage = used(input=10, cache_read=9000, cache_write_5m=1000, output=50, reasoning=40)
    by_hand = 10 * 5 + 9000 * 0.5 + 1000 * 6.25 + 50 * 25
    assert cost(usage).usd == by_hand / 1e6 == 0.01205
    longer = used(input=10, cache_read=9000, cache_write_1h=1000, output=50)
    assert cost(longer).usd == (by_hand + 1000 * (2 * 5 - 6.25)) / 1e6


def test_openais_buckets_cost_what_a_hand_computes():
    usage = used("gpt-5-2025-08-07", "openai", input=1010, cache_read=9000, output=100)
    assert cost(usage).usd == (1010 * 1.25 + 9000 * 0.125 + 100 * 10) / 1e6


def test_sums_are_exact_whatever_the_number_of_calls():
    usages = [used(input=1, output=1)] * 1000
    assert Fraction(str(cost(*usages).usd)) == Fraction(3, 100)


def test_several_models_cost_their_sum_and_name_their_table_once():
    both = cost(used(input=1000), used("gpt-4o", "openai", output=1000))
    assert both == (0.015, f"railgym {bundled().date}")


@pytest.mark.parametrize(
    "usage",
    [
        used("no-such-model", input=5),
        used("", "", input=5),
        used("gpt-5", "chat", input=5),
        used("gpt-5", "anthropic", input=5),
        used("claude-opus-4-5-thinking-pro", input=5),
        used("gpt-5-pro", "openai", input=1, cache_read=5),
        used(input=5, unmetered=1),
    ],
)
def test_what_is_not_known_has_no_price_instead_of_none_at_all(usage):
    assert cost(usage) == UNKNOWN == (None, "none")
    assert cost(used(input=5), usage) == UNKNOWN


def test_nothing_used_has_no_cost():
    assert cost() == UNKNOWN
    assert cost(used(calls=0)).usd == 0


def test_a_price_may_depend_on_the_length_of_the_prompt():
    short, long = used("claude-haiku-5-5", input=100_000), used("claude-haiku-5-5", input=100_001)
    assert cost(short).usd == pytest.approx(0.01)
    assert cost(long).usd == pytest.approx(0.0500005)
    mixed = long._replace(input=200_001, smallest_prompt=100_000)
    assert cost(mixed) == UNKNOWN
    by_call = prices_with().cost([mixed], [short, long])
    assert by_call == (pytest.approx(0.0600005), f"railgym {bundled().date}")
    assert prices_with().cost([mixed], [short, long._replace(unmetered=1)]) == UNKNOWN
    assert prices_with().cost([mixed], [used("gpt-5", "openai", input=1)]) == UNKNOWN
    assert cost(used("claude-sonnet-4-5", input=200_001)) == UNKNOWN


TIER = st.builds(
    lambda up_to, above, usd: {"prompt_up_to": up_to, "prompt_above": above, "input": Decimal(usd)},
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.integers(0, 9),
)


@given(tiers=st.lists(TIER, max_size=4), prompts=st.lists(st.integers(1, 9), min_size=1))
@settings(deadline=None, max_examples=200)
def test_what_is_priced_as_a_whole_costs_what_its_calls_cost(tiers, prompts):
    prices = [Price(provider="p", model="m", **tier) for tier in tiers]
    table = Table(name="t", date=date(2026, 1, 2), source="", price=prices)
    calls = [used("m", "p", input=prompt) for prompt in prompts]
    each = [Prices([table]).cost([call]).usd for call in calls]
    whole = Prices([table]).cost([add(calls)]).usd
    by_call = Prices([table]).cost([add(calls)], calls).usd
    assert by_call == (None if None in each else pytest.approx(sum(each)))
    assert whole in (by_call, None)


def test_an_episode_with_short_and_long_prompts_has_a_cost_also_when_a_server_scores_it(tmp_path):
    claims = [
        claim("claude-haiku-5-5", usage={"input": count, "output": 0}) for count in (10, 200_000)
    ]
    write_log(
        tmp_path / "log", [Play(DOG, letters("dog"), {"agent": "a"}, claims=claims)], REGISTRY
    )
    (score,) = score_log(tmp_path / "log", REGISTRY)
    assert score.metrics["cost_usd"] == pytest.approx((10 * 0.1 + 200_000 * 0.5) / 1e6)
    sent = score.priced(prices_with())  # of a server's score only the sums are known
    assert "cost_usd" not in sent.metrics
    (gap,) = prices_with().gaps(sent.models)
    assert gap == "no one price for anthropic/claude-haiku-5-5 with prompts of 10 to 200,000 tokens"


def test_it_is_said_once_for_each_model_why_it_has_no_cost():
    usages = [
        used("half", "openai-compatible", input=5),
        used("gpt-5.4", "openai", cache_write_5m=5),
        used("half", "openai-compatible", input=7),
        used("gpt-5.4", "openai", cache_write_1h=5),
        used("", "", input=5),
        used(unmetered=1),
        used("gpt-5", "openai", input=5),
        used("nothing-of-it"),
    ]
    assert prices_with().gaps(usages) == [
        "no price for openai-compatible/half",
        "no cache_write_5m, cache_write_1h price for openai/gpt-5.4",
        "no price for no provider/no model",
        "calls of anthropic/claude-opus-4-5-20251101 that do not say what they used: 1",
    ]


def test_a_provider_may_be_a_pattern_and_case_does_not_matter():
    price = Price(provider="*Compatible", model="Qwen3*", input=Decimal(1), output=Decimal(1))
    table = Table(name="t", date=date(2026, 1, 2), source="", price=(price,))
    prices = Prices([table, bundled()])
    assert cost(used("qwen3-8B", "openai-compatible", input=10**6), prices=prices).usd == 1
    assert cost(used("qwen3-8B", "openai", input=10**6), prices=prices) == UNKNOWN
    assert prices.idle([used("gpt-5", "openai")]) == ["t 2026-01-02"]
    assert prices.idle([used("qwen3", "openai-compatible"), used("gpt-5", "openai")]) == []


def test_tables_survive_being_kept_as_json(tmp_path):
    own = tmp_path / "own.toml"
    own.write_text(OWN.replace("0.25", "0.1234567890123456789"))
    prices = prices_with([own])
    again = prices_kept(json.loads(json.dumps(prices.kept())))
    for model in ("my-x", "gpt-5"):
        usage = used(model, "openai" if model == "gpt-5" else "local", input=10**12)
        assert cost(usage, prices=again) == cost(usage, prices=prices) != UNKNOWN
    assert again.kept() == prices.kept()
    with pytest.raises(PricesError, match="as a run keeps them"):
        prices_kept([{"name": "x"}])


def test_the_bundled_table_is_dated_and_keeps_to_published_multipliers():
    table = bundled()
    assert table.date <= date.today()
    assert "https://" in table.source
    for price in table.price:
        assert price.provider in ("anthropic", "openai")
        assert price.input
        assert price.output > price.input
        if price.provider == "anthropic":
            assert price.cache_write_5m == price.input * Decimal("1.25")
            assert price.cache_write_1h == price.input * 2
            assert price.cache_read <= price.input / 10
    older = [p for p in table.price if p.provider == "anthropic" and "5-" not in p.model]
    assert all(price.cache_read == price.input / 10 for price in older)


def test_every_bundled_price_can_be_reached():
    for price in bundled().price:
        model = price.model.replace("[5-8]", "7").replace("[01]", "1").replace("[05]", "5")
        prompt = (price.prompt_above or 0) + 1
        usage = used(model, price.provider, input=prompt, smallest_prompt=prompt)
        assert cost(usage).usd == pytest.approx(float(price.input) * prompt / 1e6)


def test_the_users_tables_are_asked_first_and_the_last_of_them_before_the_others(tmp_path):
    own, newer = tmp_path / "own.toml", tmp_path / "newer.toml"
    own.write_text(OWN)
    newer.write_text(OWN.replace("mine", "newer").replace("100", "1"))
    prices = prices_with([own])
    assert cost(used(input=10_000), prices=prices) == (1.0, "mine 2026-12-01")
    assert cost(used("my-llama", "local", input=4_000_000), prices=prices).usd == 1
    both = cost(used(input=10), used("gpt-4o", "openai", input=10), prices=prices)
    assert both.source == f"mine 2026-12-01, railgym {bundled().date}"
    assert cost(used(input=10_000), prices=prices_with([own, newer])).source == "newer 2026-12-01"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("name = ", "expected TOML"),
        (OWN.replace("date = 2026-12-01", ""), "date: Field required"),
        (OWN.replace("input = 0.25", "input = -1"), "price.0.input: .*greater than or equal to 0"),
        (OWN.replace("input = 0.25", "input = nan"), "price.0.input: .*finite"),
        (OWN.replace("input = 0.25", "inputs = 1"), "price.0.inputs: Extra inputs"),
        (OWN.replace("price = [", "prices = ["), "price: Field required"),
        (
            OWN.replace("date = 2026-12-01", "").replace("input = 0.25", "inptu = 3"),
            "date: Field required; price.0.inptu: Extra inputs are not permitted$",
        ),
    ],
)
def test_a_table_that_is_wrong_is_refused_by_its_place(text, wrong, tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(PricesError, match=f"{path}: {wrong}"):
        read_table(path)
    result = CliRunner().invoke(app, ["score", str(tmp_path), "--prices", str(path)])
    assert result.exit_code == Exit.WRONG_INPUT
    assert "Traceback" not in result.output


def test_a_table_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(PricesError, match="No such file"):
        prices_with([tmp_path / "none.toml"])


def test_one_claim_can_be_priced_by_itself():
    retried = claim(retries=[{"status": None, "usage": {"input": 0, "output": 1000}}])
    assert prices_with().cost_of(claim()) == 0.01205
    assert prices_with().cost_of(retried) == 0.03705
    assert prices_with().cost_of(claim(model="new")) is None
    assert prices_with().cost_of({"kind": "note"}) is None
    assert prices_with().cost_of(claim(usage=None, error={"status": 429})) == 0


def a_run(folder):
    """A priced model, one without a price and one of the user's own, and a scripted agent."""
    claims = {
        "opus": [claim()],
        "new": [claim(model="new")],
        "llama": [claim("my-llama", "local")],
        "oracle": [],
    }
    plays = [
        Play(DOG, letters("dog"), {"agent": agent}, claims=said) for agent, said in claims.items()
    ]
    folder.mkdir()
    write_log(folder / "log", plays, REGISTRY)
    (folder / "tasks.jsonl").write_text(DOG.row() + "\n")
    return list(score_log(folder / "log", REGISTRY))


def test_an_unknown_price_is_none_and_in_no_mean_and_counted(tmp_path):
    scores = a_run(tmp_path / "run")
    found = {s.agent: (s.metrics.get("cost_usd"), s.price_source) for s in scores}
    source = f"railgym {bundled().date}"
    assert found["opus"] == (0.01205, source)
    assert found["new"] == found["llama"] == found["oracle"] == (None, "none")
    assert {s.agent: s.metrics.get("total_tokens") for s in scores}["llama"] == 10_060
    mixed = summarise(s._replace(labels={"agent": "all"}) for s in scores)
    row = mixed.groups[0].total
    assert (row.metrics["cost_usd"].n, row.mean("cost_usd")) == (1, 0.01205)
    assert (row.cost_per_success, row.spent_usd, row.unpriced) == (0.01205, 0.01205, 2)
    assert row.tokens_per_success == 10_060
    assert any("2 of unknown cost" in line for line in notes(mixed))


def reprice(*args):
    result = CliRunner().invoke(app, ["score", *map(str, args)])
    assert result.exit_code == Exit.OK, result.output
    return result.output


def test_an_old_run_gets_other_costs_without_being_run_again(tmp_path):
    folder, own, out = tmp_path / "run", tmp_path / "own.toml", tmp_path / "new.json"
    before = a_run(folder)
    own.write_text(WITH_CACHES)
    args = [folder, "--tasks", folder / "tasks.jsonl", "--prices", own, "-o", out]
    assert "Cost of an episode" in reprice(*args)
    after = read_scores(out)
    costs = {s.agent: (s.metrics.get("cost_usd"), s.price_source) for s in after}
    assert costs["opus"] == (0.016, "mine 2026-12-01")
    assert costs["llama"] == (None, "none")  # of caches, the user's table says nothing
    for old, new in zip(before, after, strict=True):
        assert new == old.priced(prices_with([own]))


def test_a_run_whose_log_is_elsewhere_is_priced_from_its_scores(tmp_path):
    scores = a_run(tmp_path / "run")
    folder, own, out = tmp_path / "remote", tmp_path / "own.toml", tmp_path / "new.json"
    folder.mkdir()
    write_scores(summarise(s.priced(Prices([])) for s in scores), folder / "scores.json")
    assert not any("cost_usd" in s.metrics for s in read_scores(folder / "scores.json"))
    own.write_text(WITH_CACHES)
    reprice(folder, "--prices", own, "-o", out)
    assert read_scores(out) == [s.priced(prices_with([own])) for s in scores]
    [opus] = [s for s in read_scores(out) if s.agent == "opus"]
    assert opus.metrics["cost_usd"] == (10 * 100 + 9000 + 1000 + 50 * 100) / 1e6 == 0.016


def test_the_table_of_costs_fits_a_hundred_columns_and_leaves_out_who_called_no_model(tmp_path):
    scores = [
        s._replace(
            labels={"agent": f"{s.agent}:{'x' * 60}"},
            env_id="railgym/MultiverseMath-v1",
            metrics={name: value * 12_345 for name, value in s.metrics.items()},
        )
        for s in a_run(tmp_path / "run")
    ]
    out = io.StringIO()
    Console(file=out, width=100).print(use_table(summarise(scores)))
    assert max(map(len, out.getvalue().splitlines())) <= 100
    assert "oracle" not in out.getvalue()
    assert re.search(r"opus:x+ .* 124M +124M +149 +149 +n/a ", out.getvalue())


def test_of_several_prices_that_fit_the_first_counts():
    given = {"provider": "p", "output": Decimal(0)}
    first = Price(model="m-1", input=Decimal(1), **given)
    second = Price(model="m*", input=Decimal(2), **given)
    table = Table(name="t", date=date(2026, 1, 2), source="", price=(first, second))
    prices = Prices([table])
    assert cost(used("m-1", "p", input=10**6), prices=prices) == (1.0, "t 2026-01-02")
    assert cost(used("M-1-20260102", "P", input=10**6), prices=prices).usd == 1
    assert cost(used("m-10", "p", input=10**6), prices=prices).usd == 2
    assert set(BUCKETS) <= set(Price.model_fields)
