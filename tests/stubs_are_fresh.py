"""Generates the Python stubs into a temporary folder and compares them with the committed ones."""

import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / "clients/python/railgym/v1"


def main() -> int:
    """Exits with 1 where a committed stub is missing, stale or not made by `make stubs`."""
    with tempfile.TemporaryDirectory() as folder:
        outs = ["python", "grpc_python", "mypy", "mypy_grpc"]
        protos = sorted(str(path) for path in (ROOT / "proto/railgym/v1").glob("*.proto"))
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}"]
        command += [f"--{out}_out={'quiet:' if 'mypy' in out else ''}{folder}" for out in outs]
        subprocess.run([*command, *protos], check=True)
        fresh = Path(folder) / "railgym/v1"
        names = {path.name for path in (*fresh.iterdir(), *COMMITTED.glob("*_pb2*"))}
        _, differing, missing = filecmp.cmpfiles(fresh, COMMITTED, names, shallow=False)
    if differing or missing:
        print(f"stale stubs, run `make stubs`: {', '.join(sorted(differing + missing))}")
        return 1
    print(f"stubs are fresh: {len(names)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
