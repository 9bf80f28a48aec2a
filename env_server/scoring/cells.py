"""Numbers and names as they stand in tables, for people."""

from __future__ import annotations


def number(value: float | None, digits: int = 2) -> str:
    """A number for people; "n/a" where there is none."""
    return "n/a" if value is None else f"{value:.{digits}f}"


def significant(value: float | None) -> str:
    """A number of any size, to three digits: costs may be cents or less."""
    if value is None:
        return "n/a"
    return f"{value:.0f}" if value >= 1_000 else f"{value:.3g}"


def tokens(value: float | None) -> str:
    """A number of tokens, in thousands or millions where it has so many."""
    if value is None or value < 10_000:
        return number(value, 0)
    return f"{value / 1e3:.0f}k" if value < 1e7 else f"{value / 1e6:.0f}M"


def seconds(milliseconds: float | None) -> str:
    """Milliseconds as seconds."""
    return number(None if milliseconds is None else milliseconds / 1_000, 1)


def short_env(env_id: str) -> str:
    """The id of an environment without our own namespace."""
    return env_id.removeprefix("railgym/")
