"""What differs between two states of an environment: JSON values, compared part by part.

It knows no environment. A list that has grown or shrunk is compared as a collection, since the
place of an item in it says little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from env_server.arguments import canonical_json

MOST = 50
"""Changes of a step that are kept."""

LONGEST = 500
"""Characters of a value that are kept."""


class Change(NamedTuple):
    """A part of a state that is another one than before.

    Attributes:
        path: Where: names and numbers, with dots between them; empty for the whole.
        before: The value as JSON; None: it was not there.
        after: Likewise.
    """

    path: str
    before: str | None
    after: str | None


def changes(before: Any, after: Any) -> list[Change]:
    """Compares two states; of more than `MOST` differences the last says how many there are."""
    found = _differences((), before, after)
    kept = list(islice(found, MOST))
    more = sum(1 for _ in found)
    return [*kept, Change("", None, f"{more} more changes")] if more else kept


def _differences(path: Sequence[str], before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            if name not in after:
                yield _change([*path, name], [before[name]], [])
            elif name not in before:
                yield _change([*path, name], [], [after[name]])
            else:
                yield from _differences([*path, name], before[name], after[name])
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(path, before, after)
    elif canonical_json(before) != canonical_json(after):
        yield _change(path, [before], [after])


def _of_lists(path: Sequence[str], before: list[Any], after: list[Any]) -> Iterator[Change]:
    if len(before) == len(after):
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences([*path, str(i)], old, new)
        return
    old_items, new_items = (Counter(map(canonical_json, items)) for items in (before, after))
    where = ".".join(path)
    for text in sorted((old_items - new_items).elements()):
        yield Change(where, _cut(text), None)
    for text in sorted((new_items - old_items).elements()):
        yield Change(where, None, _cut(text))


def _change(path: Sequence[str], before: list[Any], after: list[Any]) -> Change:
    """A change of values that are there or not: lists of one or of none."""
    old, new = (_cut(canonical_json(value[0])) if value else None for value in (before, after))
    return Change(".".join(path), old, new)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
