"""`import railgym` is quick and thin, and tells Gymnasium of the environments."""

import subprocess
import sys

import pytest

import railgym


def in_a_fresh_process(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


IMPORT = """
import sys, time
start = time.perf_counter()
import railgym
print(time.perf_counter() - start)
heavy = {"grpc", "google", "gymnasium", "numpy", "duckdb", "pydantic", "env_server"}
print(*heavy & {*sys.modules})
"""


def test_the_import_is_quick_and_thin():
    runs = [in_a_fresh_process(IMPORT).split("\n") for _ in range(3)]
    assert min(float(seconds) for seconds, *_ in runs) < 0.1
    assert {heavy for _, heavy, _ in runs} == {""}


def test_the_client_needs_nothing_of_the_server():
    program = "import sys, railgym\n"
    program += "[getattr(railgym, name) for name in railgym.__all__]\n"
    program += "print(*{'duckdb', 'pydantic', 'typer', 'env_server'} & {*sys.modules})"
    assert in_a_fresh_process(program) == "\n"


@pytest.mark.parametrize(
    "imports", ["import gymnasium, railgym", "import railgym, gymnasium", "import gymnasium"]
)
def test_gymnasium_knows_the_environments_in_any_order_of_imports(imports):
    program = f"{imports}\n"
    program += "env = gymnasium.make('railgym:railgym/Typewriter-v1', disable_env_checker=True)\n"
    program += "print(type(env.unwrapped).__name__, 'env_server' in __import__('sys').modules)"
    assert in_a_fresh_process(program) == "RailgymEnv False\n"


def test_every_public_name_is_there():
    assert set(railgym._HOMES) == {*railgym.__all__} - {"__version__"}
    for name in railgym.__all__:
        assert getattr(railgym, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = railgym.nonsense
