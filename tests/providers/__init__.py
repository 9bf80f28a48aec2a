"""A provider of models on this machine: three APIs over HTTP, whose answers a test scripts.

    with FakeProvider(in_turn(Fault(529), Say("blue"))) as provider:
        anthropic.Anthropic(base_url=provider.url, api_key="any").messages.create(...)

It is strict where the real ones are: a conversation that they would refuse gets a 400.
"""

from providers.asked import Asked, BadRequest
from providers.gold import gold
from providers.replies import Cut, Fault, Html, Overloaded, Raw, Reply, Say, Slow
from providers.scripts import always, in_turn
from providers.server import FakeProvider, Script

__all__ = [
    "Asked",
    "BadRequest",
    "Cut",
    "FakeProvider",
    "Fault",
    "Html",
    "Overloaded",
    "Raw",
    "Reply",
    "Say",
    "Script",
    "Slow",
    "always",
    "gold",
    "in_turn",
]
