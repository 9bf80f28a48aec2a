"""Scripts: what a provider answers to what it is asked."""

import threading

from providers.asked import Asked
from providers.replies import Reply, Say
from providers.server import Script


def always(reply: Reply) -> Script:
    """Answers everything alike."""
    return lambda asked, attempt: reply


def in_turn(*replies: Reply) -> Script:
    """Answers one request after the other, and says nothing of use after the last."""
    rest, lock = iter(replies), threading.Lock()

    def script(asked: Asked, attempt: int) -> Reply:
        with lock:
            return next(rest, Say("The script is over."))

    return script
