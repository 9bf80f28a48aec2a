"""Models without tool calling: told of the tools in words, they write their calls as JSON.

What a model writes goes to the server as it is, which parses it; see `railgym.agents.prompts` for
what the model is told of the form. It goes over Chat Completions and without tools.
"""

from __future__ import annotations

from collections.abc import Sequence

from railgym.agents.openai_chat import ChatConversation, OpenAIChat
from railgym.spaces import ToolSpec


class JsonProtocol(OpenAIChat):
    """Models behind Chat Completions that write JSON in place of tool calls."""

    api = "json"

    def begin(self, system: str, instruction: str, tools: Sequence[ToolSpec]) -> ChatConversation:
        """Begins the conversation of an episode; the tools stand in the system's prompt."""
        return super().begin(system, instruction, ())
