"""The base install is the thin client: it imports, and it brings no server dependency."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import railgym

for name in ("duckdb", "pydantic", "typer", "scipy", "matplotlib"):
    assert importlib.util.find_spec(name) is None, f"the base install brings {name}"
assert railgym.connect("127.0.0.1:1") is not None
command = Path(sys.executable).with_name("railgym")
told = subprocess.run([command, "serve"], capture_output=True, text=True, check=False)
assert told.returncode != 0
assert "railgym[server]" in told.stderr, told.stderr
print(f"the thin client works: railgym {railgym.__version__}")
