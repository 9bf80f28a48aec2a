"""`railgym run` with the four model agents: what its scores say is what the provider was asked."""

import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

from providers import Asked, FakeProvider, Fault, Reply, Say, gold

PRICES = {"input": 3, "cache_read": "0.3", "cache_write_5m": "3.75", "output": 15}
"""In USD for a million tokens: as odd as prices are."""

MODELS = {"anthropic": "claude", "openai": "gpt", "chat": "qwen", "json": "gemma"}
FAULTS = [Fault(429, {"Retry-After": "1"}), Fault(529)]


def agent(name: str, provider: FakeProvider) -> str:
    url = provider.url if name == "anthropic" else provider.openai_url
    return f"{name}:{MODELS[name]}?base_url={url}"


def price_table() -> str:
    prices = ", ".join(f"{bucket} = {price}" for bucket, price in PRICES.items())
    entries = [
        f'{{ provider = "{provider}", model = "*", {prices} }}'
        for provider in ("anthropic", "openai-compatible")
    ]
    about = 'name = "test"\ndate = 2026-12-01\nsource = "made up"\n'
    return f"{about}price = [{', '.join(entries)}]\n"


def cost(say: Say) -> Decimal:
    counts = {bucket: say.count(bucket) for bucket in PRICES}
    return sum((counts[b] * Decimal(str(price)) for b, price in PRICES.items()), Decimal()) / 10**6


def test_usage_cost_and_retries_equal_the_script(registry: Any, tmp_path: Any):
    right = gold(registry)

    def script(asked: Asked, attempt: int) -> Reply:
        """Fails before some answers, once or twice."""
        failures = FAULTS[: len(asked.instruction) % 5] if asked.turns == 1 else []
        return failures[attempt - 1] if attempt <= len(failures) else right(asked, attempt)

    (tmp_path / "prices.toml").write_text(price_table())
    with FakeProvider(script) as provider:
        words = [word for name in MODELS for word in ("--agent", agent(name, provider))]
        words += ["--env", "MultiverseMath-v1", "--tag", "reference", "--name", "run", "--json"]
        words += ["--prices", "prices.toml", "--fail-under", "1"]
        command = [sys.executable, "-m", "env_server.cli", "run", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
        asked = list(provider.requests)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "runs/run/episodes.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    scores = json.loads((tmp_path / "runs/run/scores.json").read_text())["episodes"]
    for model in MODELS.values():
        replies = [one.reply for one in asked if one.model == model]
        said = [reply for reply in replies if isinstance(reply, Say)]
        mine = [row for row in rows if row["model"] == model]
        assert len(mine) == 20
        assert all(row["success"] for row in mine)
        total = sum(Decimal(str(row["cost_usd"])) for row in mine)
        assert round(total, 9) == round(sum(map(cost, said)), 9) > 0
        assert sum(row["total_tokens"] for row in mine) == sum(
            say.prompt + say.count("output") for say in said
        )
        ids = {row["episode_id"] for row in mine}
        metrics = [score["metrics"] for score in scores if score["episode_id"] in ids]
        assert sum(one["retries"] for one in metrics) == len(replies) - len(said) > 0
        assert sum(one["model_calls"] for one in metrics) == len(said)
