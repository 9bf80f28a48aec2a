"""Tasks as data: one JSON line each, read into `Task` with file and line in every error.

A task says what to do, from which state, on which rails, and what success is. It knows no
environment: whether its tools exist and its gold solves it is for `env_server.lint` to say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from env_server.arguments import BadJson, BrokenJson, canonical_json, parse_object
from env_server.validators import VALIDATORS

LEVELS = ("L1", "L2", "L3")


class TaskError(ValueError):
    """A task file that cannot be read; the message begins with file and line."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GoldCall(_Data):
    """One tool call of the gold solution.

    Attributes:
        tool: Name of the tool.
        arguments: By name. `{"$step": 2, "path": [0, "id"]}` in place of a value stands for what
            gold step 2 returned, or for the part of it at the path.
    """

    tool: str
    arguments: dict[str, Any] = {}


class GoldFinal(_Data):
    """The answer of the gold solution.

    Attributes:
        final: The text; "$expected" stands for the expected value, "$expected.NAME" for a part of
            it. An object is written as JSON.
    """

    final: str


class Task(_Data):
    """One task.

    Attributes:
        task_id: Unique, by convention "environment/set/name".
        env_id: The environment that it runs in.
        level: L1 one tool; L2 several, where a result decides the next call; L3 long chains with
            noise and missing data.
        instruction: The goal, in words for the agent.
        options: Reset options of the environment: the start state.
        max_steps: The step at which the episode is cut off, 1 or more.
        allowed_tools: Empty: all.
        required_fields: Where not empty, the answer must be a JSON object with these keys.
        expected: An expression of which the environment computes the expected value.
        validators: `{"name": ..., parameters}` each; all must hold.
        gold: Actions that solve it, by a shortest way.
        tags: Free words to select by. One with a colon is a note for the scorer, such as
            "langchain_steps:add,negate", and never leaves the server.
    """

    task_id: str = Field(min_length=1, max_length=200)
    env_id: str = Field(min_length=1)
    level: Literal["L1", "L2", "L3"]
    instruction: str = Field(min_length=1)
    options: dict[str, Any] = {}
    max_steps: int = Field(ge=1, le=10_000)
    allowed_tools: list[str] = []
    required_fields: list[str] = []
    expected: str | None = None
    validators: list[dict[str, Any]] = Field(min_length=1)
    gold: list[GoldCall | GoldFinal] = Field(min_length=1)
    tags: list[str] = []

    @model_validator(mode="after")
    def _names_validators(self) -> Self:
        for rule in self.validators:
            if rule.get("name") not in list(VALIDATORS):  # a name may be anything, even a list
                names = ", ".join(VALIDATORS)
                raise ValueError(f"expected a validator of {names}; got {rule.get('name')!r}")
        return self

    @cached_property
    def sha256(self) -> str:
        """Digest of the row in canonical form (hex). Equal digests mean the same task."""
        return hashlib.sha256(self.row().encode()).hexdigest()

    def row(self) -> str:
        """The task as one line of canonical JSON, without fields that have their default."""
        return canonical_json(self.model_dump(exclude_defaults=True))


def read_tasks(paths: Iterable[Path]) -> dict[str, Task]:
    """Reads task files, and those in folders, into one table by id.

    Args:
        paths: Files of JSON lines, or folders that hold `*.jsonl` at any depth.

    Raises:
        TaskError: A file or a line cannot be read, or an id stands twice.
    """
    tasks: dict[str, Task] = {}
    for _, found in scan_tasks(paths):
        if isinstance(found, TaskError):
            raise found
        tasks[found.task_id] = found
    return tasks


def scan_tasks(paths: Iterable[Path]) -> Iterator[tuple[str, Task | TaskError]]:
    """Reads task files as `read_tasks` does, and goes on after an error.

    Yields:
        FILE:LINE (FILE alone where no line can be read), and the task or what is wrong with it.
    """
    places: dict[str, str] = {}
    for file in (file for path in paths for file in _files(path)):
        for place, found in _read_file(file):
            if isinstance(found, Task):
                first = places.setdefault(found.task_id, place)
                if first != place:
                    message = f"{place}: task id {found.task_id!r} stands at {first} already"
                    found = TaskError(message)
            yield place, found


def bundled_folder() -> Path:
    """Where the tasks that come with Railgym are."""
    installed = Path(__file__).parent / "bundled_tasks"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "tasks"


def bundled_tasks() -> dict[str, Task]:
    """The tasks that come with Railgym, by id."""
    return read_tasks([bundled_folder()])


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]


def _read_file(file: Path) -> Iterator[tuple[str, Task | TaskError]]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as e:
        got = f"{e.reason} at byte {e.start}"
        yield str(file), TaskError(f"{file}: expected UTF-8, got {got}")
        return
    except OSError as e:
        yield str(file), TaskError(f"{file}: expected a file or folder of tasks: {e.strerror}")
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"{file}:{number}"
            yield place, _read_line(place, line)


def _read_line(place: str, line: str) -> Task | TaskError:
    try:
        return Task.model_validate(parse_object(line))
    except (BadJson, BrokenJson) as e:
        return TaskError(f"{place}: {e}")
    except ValidationError as e:
        first = e.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "task"
        got = json.dumps(first["input"], default=str)[:120]
        return TaskError(f"{place}: {where}: {first['msg']}; got {got}")
