"""`railgym envs`: what can be played, and with which actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from env_server.cli.options import Access, Json, RemoteAddress, TlsCa, TlsCert, TlsKey, Token
from env_server.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from railgym.records import EnvInfo
    from railgym.spaces import ToolSpec


def envs(
    env_id: Annotated[
        str | None,
        typer.Argument(show_default=False, help="Show this one. Default: list all."),
    ] = None,
    address: RemoteAddress = None,
    token: Token = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
) -> None:
    """List environments, or show the tools and reset options of one.

    `railgym envs railgym/Relational-v1`
    """
    from env_server.cli.catalogue import env_json, envs_at, find

    access = Access(token, tls_ca, tls_cert, tls_key)
    found = {env.env_id: env for env in envs_at(address, access)}
    if env_id is not None:
        env = found[find("environment", env_id, found)]
        print_json(env_json(env)) if as_json else _show(env)
    elif as_json:
        print_json([env_json(env) for env in found.values()])
    else:
        rows = (
            [e.env_id, e.task_count, _actions(e), summary(e.description)] for e in found.values()
        )
        print_rows(["environment", "tasks", "actions", "what"], rows)


def _show(env: EnvInfo) -> None:
    typer.echo(f"{env.env_id}  ({env.env_version}, {env.task_count} tasks)\n\n{env.description}\n")
    if env.tools:
        typer.echo("Tools:\n")
        print_rows(["call", "what"], ([signature(t), summary(t.description)] for t in env.tools))
    else:
        typer.echo(f"Actions:      {env.action_space}\nObservations: {env.observation_space}")
    options = (env.options_schema or {}).get("properties", {})
    if options:
        typer.echo("\nReset options:\n")
        print_rows(["option", "default", "what"], map(_option, options.items()))


def signature(tool: ToolSpec) -> str:
    """A tool as a call: `send(to: string, text: string, times: integer = ...)`."""
    required = tool.parameters.get("required", [])
    parts = [
        f"{name}: {_type(schema)}{'' if name in required else ' = ...'}"
        for name, schema in tool.parameters.get("properties", {}).items()
    ]
    return f"{tool.name}({', '.join(parts)})"


def summary(text: str) -> str:
    """The first paragraph of a text that is no heading, on one line."""
    paragraphs = (part for part in text.split("\n\n") if not part.lstrip().startswith("#"))
    return " ".join(next(paragraphs, "").split())


def _type(schema: dict[str, Any]) -> str:
    choices = [_type(part) for part in schema.get("anyOf", [])]
    return " | ".join(choices) or str(schema.get("type", "any"))


def _option(item: tuple[str, dict[str, Any]]) -> list[object]:
    name, schema = item
    default = repr(schema["default"]) if "default" in schema else "(required)"
    return [name, default, summary(str(schema.get("description", "")))]


def _actions(env: EnvInfo) -> str:
    if not env.tools:
        return str(env.action_space)
    return f"{len(env.tools)} tools" if len(env.tools) > 1 else "1 tool"
