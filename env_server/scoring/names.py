"""Short names of agents, for tables and pictures: of each, what tells it from the others shown.

A model agent is named PROVIDER:MODEL?KEY=VALUE&..., perhaps with rails in brackets behind it. Of
its options those are shown that differ among the agents of the same model, but the address of a
server only where nothing else differs. Every other name stays as it is, but for its length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from env_server.errors import printable

LIMIT = 40
"""Characters of a short name; of a longer one both ends are kept."""

_ADDRESS = "base_url"


class _Parts(NamedTuple):
    """A name, taken apart."""

    model: str
    options: Mapping[str, str]
    rails: str


def short_names(agents: Iterable[str]) -> dict[str, str]:
    """Names agents shortly, so that no two of them have one name.

    Args:
        agents: All that are shown together.

    Returns:
        The short name of each, safe to print; in the order of the full names.
    """
    full = sorted(set(agents))
    parts = {name: _split(name) for name in full}
    models: dict[tuple[str, str], list[_Parts]] = defaultdict(list)
    for part in parts.values():
        models[part.model, part.rails].append(part)
    by_options = {
        name: _joined(part, _differing(models[part.model, part.rails]))
        for name, part in parts.items()
    }
    by_host = {
        name: f"{short} @{_host(parts[name].options[_ADDRESS])}"
        if _ADDRESS in parts[name].options
        else short
        for name, short in by_options.items()
    }
    found = by_options
    for longer in (by_host, {name: name for name in full}):
        taken = _counted(found)
        found = {n: longer[n] if len(taken[short]) > 1 else short for n, short in found.items()}
    return _cut(found)


def _split(name: str) -> _Parts:
    rest, rails = name, ""
    if name.endswith("]") and " [" in name:
        rest, _, rails = name.rpartition(" [")
    model, _, query = rest.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        return _Parts(name, {}, "")
    return _Parts(model, dict(pairs), f" [{rails}" if rails else "")


def _differing(alike: Sequence[_Parts]) -> list[str]:
    """The options, but for the address, that are not the same for all."""
    keys = dict.fromkeys(key for part in alike for key in part.options if key != _ADDRESS)
    return [key for key in keys if len({part.options.get(key) for part in alike}) > 1]


def _joined(part: _Parts, keys: Iterable[str]) -> str:
    told = [f" {key}={part.options[key]}" for key in keys if key in part.options]
    return f"{part.model}{''.join(told)}{part.rails}"


def _host(address: str) -> str:
    try:
        return urlsplit(address).netloc.rpartition("@")[2] or address
    except ValueError:
        return address


def _counted(names: Mapping[str, str]) -> dict[str, list[str]]:
    """Who has each short name."""
    by_short: dict[str, list[str]] = defaultdict(list)
    for name, short in names.items():
        by_short[short].append(name)
    return by_short


def _cut(names: Mapping[str, str]) -> dict[str, str]:
    """Cuts what is too long, and numbers what is alike then."""
    cut = {name: _ends(printable(short) or "(none)") for name, short in names.items()}
    by_short = _counted(cut)
    return {
        name: f"{short} #{by_short[short].index(name) + 1}" if len(by_short[short]) > 1 else short
        for name, short in cut.items()
    }


def _ends(text: str) -> str:
    return text if len(text) <= LIMIT else f"{text[: LIMIT - 16]}…{text[-15:]}"
