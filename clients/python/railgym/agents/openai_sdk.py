"""What the APIs of OpenAI share: a model behind the SDK, its errors, its usage.

The retries of the SDK are off: whether and when to try again is for `railgym.agents.retry`. The
SDK is imported when a conversation begins, and not before.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from railgym.agents import RunStopped
from railgym.agents.model import CutOff, Failure, Usage
from railgym.agents.replies import place, refused
from railgym.agents.retry import failure_of

if TYPE_CHECKING:
    import openai

LIKE: Mapping[str, int] = {
    "insufficient_quota": 402,
    "billing_hard_limit_reached": 402,
    "billing_not_active": 402,
    "invalid_api_key": 401,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "overloaded_error": 529,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
}
"""Words that say more than the status that they come with, or come without one, in a stream."""


class OpenAIModel:
    """A model behind the SDK of OpenAI: all of a `Provider` but its conversations.

    Attributes:
        model: As the server calls it.
        provider: Whose API it is.
        parameters: Sent with every request, as they are.
        stream: Whether answers are streamed.
    """

    api: str

    def __init__(self, model: str, base_url: str | None, parameters: Mapping[str, Any]) -> None:
        """Asks nothing yet.

        Args:
            model: As the server calls it.
            base_url: Of a server that speaks like OpenAI's, up to and with "/v1"; None: OpenAI's,
                or as OPENAI_BASE_URL says.
            parameters: Of the API; `stream=False` has answers come in one piece.

        Raises:
            ValueError: `stream` is neither true nor false.
        """
        self.model = model
        self.provider = "openai" if base_url is None else "openai-compatible"
        self.parameters = dict(parameters)
        self.stream = self.parameters.pop("stream", True)
        if not isinstance(self.stream, bool):
            raise ValueError(f"expected true or false for stream, got {self.stream!r}")
        self._base_url = base_url

    @cached_property
    def client(self) -> openai.OpenAI:
        """The SDK's client, which threads may share. The key comes from OPENAI_API_KEY.

        A server at a `base_url` need not want a key.

        Raises:
            RunStopped: There is no key.
        """
        import openai

        needs_none = self._base_url is not None and "OPENAI_API_KEY" not in os.environ
        key = "none" if needs_none else None
        try:
            client = openai.OpenAI(api_key=key, base_url=self._base_url, max_retries=0)
        except openai.OpenAIError as e:
            raise RunStopped(f"expected a key in OPENAI_API_KEY, got none: {e}") from e
        weakref.finalize(self, client.close)
        return client

    def describe(self) -> dict[str, Any]:
        """What an answer depends on."""
        return {"parameters": dict(self.parameters)}

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What `ask` may raise besides `CutOff`."""
        import openai

        return (openai.OpenAIError,)

    def failure(self, error: Exception) -> Failure:
        """Reads what `ask` raised."""
        import openai

        if isinstance(error, CutOff):
            like = LIKE.get(error.type)
            return failure_of(None, error.type, str(error), usage=error.usage, like=like)
        if isinstance(error, openai.APIConnectionError):
            message = f"{error} {error.__cause__ or ''}".strip()
            return failure_of(None, type(error).__name__, f"{message} at {place(error)}")
        word, message = _word(error), getattr(error, "message", str(error))
        if isinstance(error, openai.APIStatusError):
            headers, like, message = error.response.headers, LIKE.get(word), refused(error, message)
            return failure_of(error.status_code, word, message, headers=headers, like=like)
        return failure_of(None, word, message, like=LIKE.get(word, 400))


@contextmanager
def cut_off(counted: Any = None) -> Iterator[None]:
    """Makes a `CutOff` of what breaks off an answer that has begun.

    Args:
        counted: Its `usage` is what was counted until then.
    """
    import httpx2
    import openai

    try:
        yield
    except httpx2.HTTPError as e:
        raise CutOff(f"the reply broke off: {e!r}", _usage(counted)) from e
    except json.JSONDecodeError as e:
        raise CutOff(f"expected JSON, got {e.doc[:200]!r}: {e}", _usage(counted)) from e
    except openai.APIStatusError:
        raise  # it has not begun
    except openai.APIConnectionError as e:
        raise CutOff(f"{e} {e.__cause__ or ''}", _usage(counted), type(e).__name__) from e
    except openai.APIError as e:
        raise CutOff(e.message, _usage(counted), _word(e)) from e


def expect_answer(answer: Any) -> None:
    """Makes sure that a reply with status 200 is an answer.

    Raises:
        CutOff: It is the page of a proxy, or an error all the same.
    """
    import openai

    if not isinstance(answer, openai.BaseModel):
        raise CutOff(f"expected JSON, got {str(answer)[:200]!r}")
    error = getattr(answer, "error", None)
    if isinstance(error, dict):
        raise CutOff(str(error.get("message")), type=str(error.get("code") or "error"))
    if isinstance(error, str):
        raise CutOff(error, type="error")


def usage_of(said: Any, prompt: str, output: str) -> Usage | None:
    """Sorts what an API says of tokens into disjoint buckets.

    Args:
        said: The usage, or None.
        prompt: Name of its field for all tokens that went in, those of the cache among them.
        output: Name of its field for all that came out, those of reasoning among them.

    Returns:
        None where the numbers are missing. What was written into a cache for 12 hours stands
        with the longer lifetime, any other such tokens with the shorter.
    """
    whole, out = getattr(said, prompt, None), getattr(said, output, None)
    if whole is None or out is None:
        return None
    into = getattr(said, f"{prompt}_details", None)
    read, written = _count(into, "cached_tokens"), _count(into, "cache_write_tokens")
    long = _count(getattr(into, "cache_write_tokens_details", None), "ttl_12h_tokens")
    thought = _count(getattr(said, f"{output}_details", None), "reasoning_tokens")
    return Usage(max(0, whole - read - written), read, written - long, long, out, thought)


def argument_text(arguments: Any) -> str:
    """The arguments of a call as text: a server that parsed them before has its object written out.

    Nothing is as good as empty text.
    """
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments)


def echoed(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the model as it can be sent back: half characters have no form in UTF-8."""
    text = json.dumps(message, ensure_ascii=False)
    echo: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
    return echo


def _word(error: Exception) -> str:
    code, kind = getattr(error, "code", None), getattr(error, "type", None)
    words = [word for word in (code, kind) if isinstance(word, str) and word]
    return words[0] if words else type(error).__name__


def _usage(counted: Any) -> Usage | None:
    return getattr(counted, "usage", None)


def _count(fields: Any, name: str) -> int:
    return getattr(fields, name, None) or 0
