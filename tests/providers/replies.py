"""What a script may answer: something said, or a fault."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

USAGE = {"input": 100, "output": 20}


class Say(NamedTuple):
    """What the model says.

    Attributes:
        text: Its words.
        calls: Its calls: name and argument text, which goes out unchanged where it is streamed.
        stop: "calls", "end", "truncated" or "refusal"; None: as the calls say.
        usage: Tokens in disjoint buckets, named as in a claim; reasoning is a part of output.
            None: the provider says nothing of it.
        thinking: What it thinks first.
        refusal: Words of a refusal, where the API has a place of their own for them.
        ids: Of the calls, where they are not to be as they should: "" for none.
        model: That answers; None: the one that was asked.
    """

    text: str = ""
    calls: Sequence[tuple[str, str]] = ()
    stop: str | None = None
    usage: Mapping[str, int] | None = USAGE
    thinking: str = ""
    refusal: str = ""
    ids: Sequence[str] | None = None
    model: str | None = None

    @property
    def ends(self) -> str:
        """The stop, whether given or not."""
        return self.stop or ("calls" if self.calls else "end")

    def count(self, bucket: str) -> int:
        """Tokens in a bucket of the usage."""
        return (self.usage or {}).get(bucket, 0)

    @property
    def prompt(self) -> int:
        """All tokens that went in."""
        return sum(n for bucket, n in (self.usage or {}).items() if bucket not in OUT)


OUT = ("output", "reasoning")


class Fault(NamedTuple):
    """An HTTP error. `type`, `code` and `message` None: what the API says with that status."""

    status: int
    headers: Mapping[str, str] = {}
    type: str | None = None
    code: str | None = None
    message: str | None = None


class Overloaded(NamedTuple):
    """An error event after half of a stream that began with HTTP 200; unstreamed, a status."""

    say: Say = Say("I was about to say")


class Cut(NamedTuple):
    """A connection that dies.

    Attributes:
        say: What would have been said.
        after_bytes: Of the body, that still arrive; None: as far as the middle of the arguments
            of the last call.
        ends_well: Whether HTTP says that this was all, as a careless proxy does.
    """

    say: Say
    after_bytes: int | None = None
    ends_well: bool = False


class Slow(NamedTuple):
    """An answer that is long in coming."""

    seconds: float
    say: Say


class Html(NamedTuple):
    """The page of a proxy where JSON is expected."""

    status: int = 200


class Raw(NamedTuple):
    """A body as it stands: one JSON value, or the data of the events of a stream."""

    body: Any


Reply: TypeAlias = Say | Fault | Overloaded | Cut | Slow | Html | Raw
