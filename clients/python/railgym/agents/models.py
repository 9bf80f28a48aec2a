"""Model agents by name: `PROVIDER:MODEL[?key=value&...]`.

    anthropic:MODEL    Anthropic Messages
    openai:MODEL       OpenAI Responses
    chat:MODEL         Chat Completions, of OpenAI or of any server at `base_url`
    json:MODEL         the same, for models without tool calling: they write JSON

Values are read as JSON where they are JSON: `openai:MODEL?temperature=0&stream=false`. Keys are
parameters of the API, but for `base_url`, `prompt` (a file whose text stands in place of
our prompt) and those that a provider's class names. API keys come from the SDKs' own environment
variables.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qsl

from railgym.agents.model import Provider
from railgym.agents.throttle import Throttle
from railgym.agents.turns import ModelAgent


class Home(NamedTuple):
    """Where the agents of a provider are.

    Attributes:
        module: Of `railgym.agents`.
        name: Of the class in it, made of the model, its `base_url` or None, and parameters.
        extra: Of this package, and name of the SDK, which is imported only when it is asked.
    """

    module: str
    name: str
    extra: str


PROVIDERS = {
    "anthropic": Home("anthropic_messages", "AnthropicMessages", "anthropic"),
    "openai": Home("openai_responses", "OpenAIResponses", "openai"),
    "chat": Home("openai_chat", "OpenAIChat", "openai"),
    "json": Home("json_protocol", "JsonProtocol", "openai"),
}

_WEB = re.compile(r"https?://[^/?#\s]+", re.IGNORECASE)


def is_model(spec: str) -> bool:
    """Whether a name is meant to be that of a model agent."""
    return spec.partition(":")[0] in PROVIDERS and ":" in spec


def find(spec: str) -> ModelAgent:
    """Makes the agent of a name. Agents of one model share their throttle.

    Raises:
        ValueError: The name is not of the form, a parameter cannot be, the SDK is not installed,
            or the file of the prompt cannot be read.
    """
    name, _, rest = spec.partition(":")
    model, _, query = rest.partition("?")
    if name not in PROVIDERS or not model:
        names = "|".join(PROVIDERS)
        raise ValueError(f"expected {names}, a colon and a model, got {spec[:80]!r}")
    home = PROVIDERS[name]
    if find_spec(home.extra) is None:
        raise ValueError(f"{name} needs the {home.extra} SDK: pip install 'railgym[{home.extra}]'")
    parameters = _parameters(query)
    base_url = _url(parameters)
    prompt = _text(parameters, "prompt")
    if "api_key" in parameters:
        key = f"{home.extra.upper()}_API_KEY"
        raise ValueError(f"expected the key in {key}, got it in a name, which goes into the log")
    make: Callable[[str, str | None, Mapping[str, Any]], Provider]
    make = getattr(import_module(f"railgym.agents.{home.module}"), home.name)
    return ModelAgent(
        make(model, base_url, parameters),
        prompt=None if prompt is None else _read(prompt),
        throttle=_throttle(home.extra, base_url, model),
    )


@cache
def _throttle(extra: str, base_url: str | None, model: str) -> Throttle:
    """The throttle of a model, one in each process: providers count calls by model."""
    return Throttle()


def _parameters(query: str) -> dict[str, Any]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise ValueError(f"expected key=value&key=value, got {query[:80]!r}") from None
    parameters: dict[str, Any] = {}
    for key, text in pairs:
        if key in parameters:
            raise ValueError(f"expected each key once, got {key[:80]!r} twice")
        parameters[key] = _value(text)
    return parameters


def _value(text: str) -> Any:
    """A value as JSON, or else as text."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except ValueError:
        return text


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _url(parameters: dict[str, Any]) -> str | None:
    """Takes `base_url` out."""
    url = _text(parameters, "base_url")
    if url is not None and not _WEB.match(url):
        raise ValueError(f"expected http:// or https:// and a host for base_url, got {url!r}")
    return url


def _text(parameters: dict[str, Any], key: str) -> str | None:
    """Takes a parameter out that must be text."""
    value = parameters.pop(key, None)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"expected text for {key}, got {value!r}")
    return value


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ValueError(f"the prompt cannot be read: {e}") from e
