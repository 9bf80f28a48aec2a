"""What an agent sends is data: no line of ours evaluates, imports or unpickles it."""

import ast
from pathlib import Path

import pytest

import env_server
import railgym

FILES = sorted(
    file for package in (env_server, railgym) for file in Path(package.__path__[0]).rglob("*.py")
)
EVALUATES = {"eval", "exec", "compile", "__import__"}
UNPACKS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-3:]))
def test_nothing_is_evaluated(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            assert node.id not in EVALUATES, f"{file}:{node.lineno}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            names = {module, *(alias.name for alias in node.names)}
            assert not UNPACKS & {name.partition(".")[0] for name in names}, f"{file}:{node.lineno}"
