"""One tool of an environment class: a typed method, its JSON Schema, the check of its arguments.

Schemas come from the signatures, descriptions from the docstrings. It knows no environment.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import docstring_parser
from pydantic import ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from env_server import arguments
from env_server.arguments import BadJson, BrokenJson, canonical_json
from env_server.errors import cut, shown
from railgym.actions import FaultCode
from railgym.spaces import ToolSpec

RESERVED = frozenset({"reset", "step", "state", "fork", "render", "close", "score", "final"})
"""Names that no tool may have: an agent must not take a tool for the protocol."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class AgentFault(Exception):
    """A mistake of the agent, on its way to becoming an observation."""

    def __init__(self, code: FaultCode, message: str) -> None:
        """Keeps the fault code beside the message for the agent."""
        super().__init__(message)
        self.code: FaultCode = code


class ToolError(AgentFault):
    """A tool cannot do what the call asks for. Raised by tools, before they change anything."""

    def __init__(self, message: str, name: str = "") -> None:
        """Keeps the message for the agent.

        Args:
            message: For the agent.
            name: The tool's own name, where the message has it as a word.
        """
        super().__init__("tool_error", message)
        self._name = name

    def told(self, shown: str) -> str:
        """The message, with the name under which the tool is shown instead of its own."""
        if shown == self._name or not self._name:
            return str(self)
        return re.sub(rf"\b{re.escape(self._name)}\b", shown, str(self))


class Call(NamedTuple):
    """A call whose arguments fit the tool.

    Attributes:
        tool: The tool.
        arguments: By parameter name, in canonical form.
        repaired: What was mended on the way, or None.
    """

    tool: Tool
    arguments: dict[str, Any]
    repaired: str | None


class Tool:
    """One tool of an environment class: a method, its schema, and the check of its arguments."""

    def __init__(self, method: Callable[..., Any], name: str | None = None) -> None:
        """Derives the tool from a typed method with a Google-style docstring.

        Raises:
            TypeError: The name is reserved or malformed, the docstring is missing, or a parameter
                has no type.
        """
        self.method = method
        self.name = name or method.__name__
        if self.name in RESERVED or not _NAME.fullmatch(self.name):
            raise TypeError(f"a tool cannot be named {self.name!r}")
        doc = docstring_parser.parse(inspect.cleandoc(method.__doc__ or ""))
        if not doc.short_description:
            raise TypeError(f"tool {self.name} needs a docstring: it is what a model is told")
        words = [doc.short_description, doc.long_description or ""]
        self.description = "\n\n".join(part for part in words if part)
        self.required: frozenset[str]
        self._adapter = self._read_signature({p.arg_name: p.description for p in doc.params})

    def _read_signature(self, described: Mapping[str, str | None]) -> TypeAdapter[dict[str, Any]]:
        hints = typing.get_type_hints(self.method, include_extras=True)
        fields: dict[str, Any] = {}
        parameters = list(inspect.signature(self.method).parameters.values())[1:]
        for parameter in parameters:
            if parameter.name not in hints:
                raise TypeError(f"parameter {parameter.name} of tool {self.name} needs a type")
            kind = _any_string(hints[parameter.name])
            kind = typing.Annotated[kind, Field(description=described.get(parameter.name))]
            has_default = parameter.default is not parameter.empty
            fields[parameter.name] = typing.NotRequired[kind] if has_default else kind
        self.required = frozenset(p.name for p in parameters if p.default is p.empty)
        make: Any = TypedDict  # a type of its own name and fields: more than mypy follows
        arguments_type = make(self.name, fields)
        arguments_type.__pydantic_config__ = ConfigDict(
            extra="forbid", strict=True, allow_inf_nan=False
        )
        return TypeAdapter(arguments_type)

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as a model is told of it."""
        schema = _without_titles(self._adapter.json_schema())
        schema = {"type": "object", "properties": {}, "required": [], **schema}
        schema["additionalProperties"] = False
        return ToolSpec(self.name, self.description, schema)

    def read(self, text: str, rule: str = "strict") -> Call:
        """Reads argument text by the canonical rule and checks it against the schema.

        Args:
            text: As the agent wrote it.
            rule: "strict": a string is not a number. "lenient": "25" is read as 25 where a number
                is wanted.

        Raises:
            AgentFault: `format_error` for text that is no JSON, `bad_arguments` for the rest.
        """
        given = self._parse(text)
        repaired = "blank_arguments" if arguments.is_blank(text) else None
        try:
            return Call(self, self._adapter.validate_python(given), repaired)
        except ValidationError as e:
            if rule != "lenient":
                raise self._misfit(e) from None
        try:
            fitted = self._adapter.validate_python(given, strict=False)
        except ValidationError as e:
            raise self._misfit(e) from None
        return Call(self, fitted, "lenient_arguments")

    def _parse(self, text: str) -> dict[str, Any]:
        if arguments.is_blank(text):
            if self.required:
                expected = ", ".join(sorted(self.required))
                raise AgentFault(
                    "bad_arguments", f"{self.name} needs {expected}; got {shown(text)}"
                )
            return {}
        try:
            return arguments.parse_object(text)
        except BrokenJson as e:
            raise AgentFault("format_error", str(e)) from None
        except BadJson as e:
            raise AgentFault("bad_arguments", str(e)) from None

    def _misfit(self, error: ValidationError) -> AgentFault:
        """Says which field of the arguments does not fit, what was expected and what came.

        The words are our own: a log must replay with any version of pydantic.
        """
        first = error.errors(include_url=False, include_context=False)[0]
        path = [str(part) for part in first["loc"] if part != "[key]"] or [str(first["input"])]
        field, expected = shown(".".join(path)), self.spec.parameters["properties"]
        if first["type"] == "missing":
            text = f"{self.name} needs the argument {field}"
        elif path[0] not in expected:
            names = ", ".join(expected) or "no arguments"
            text = f"{self.name} has no argument {field}; it takes {names}"
        else:
            wanted = {k: v for k, v in expected[path[0]].items() if k != "description"}
            got = cut(canonical_json(first["input"]))
            text = f"argument {field} of {self.name}: expected {canonical_json(wanted)}; got {got}"
        return AgentFault("bad_arguments", text)


def tool(method: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a method of a `ToolEnv` as a tool."""
    method.__tool__ = Tool(method)  # type: ignore[attr-defined]
    return method


def _any_string(kind: Any) -> Any:
    """Replaces `str` by "any Python string", since pydantic's own refuses lone surrogates."""
    if kind is str:
        return InstanceOf[str]
    if arguments_of := typing.get_args(kind):
        origin = typing.get_origin(kind)
        if origin is typing.Literal:
            return kind
        if origin is typing.Annotated:
            return typing.Annotated[(_any_string(arguments_of[0]), *arguments_of[1:])]
        if origin is types.UnionType:
            origin = typing.Union  # the type of `A | B` takes no parameters itself
        return origin[tuple(_any_string(part) for part in arguments_of)]
    return kind


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: _without_titles(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    return [_without_titles(v) for v in schema] if isinstance(schema, list) else schema
