"""What both APIs of OpenAI say alike: errors, and the numbers of a usage."""

from typing import Any

from providers.replies import Fault, Say

ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", "server_is_overloaded"),
}
OVERLOADED = Fault(503, message="Our servers are overloaded.")


def error(fault: Fault, name: str) -> dict[str, Any]:
    """The body of an error."""
    kind, code = ERRORS.get(fault.status, ("server_error", None))
    words = {
        "message": fault.message or f"This is status {fault.status} of {name}.",
        "type": fault.type or kind,
        "param": None,
        "code": fault.code or code,
    }
    return {"error": words}


def counts(say: Say) -> dict[str, Any]:
    """What went in and out of a model."""
    written = say.count("cache_write_5m") + say.count("cache_write_1h")
    return {
        "in": say.prompt,
        "in_details": {"cached_tokens": say.count("cache_read"), "cache_write_tokens": written},
        "out": say.count("output"),
        "out_details": {"reasoning_tokens": say.count("reasoning")},
        "total": say.prompt + say.count("output"),
    }
