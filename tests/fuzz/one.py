"""Fuzzes one target in this process, until libFuzzer ends it: see run.py."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["env_server", "railgym"]):
    import targets

targets.frames._BLOCK = 256  # so that a frame of a small input, too, lies across several blocks


def main() -> None:
    """Takes the name of a target, and the arguments of libFuzzer after it."""
    atheris.Setup([sys.argv[0], *sys.argv[2:]], targets.TARGETS[sys.argv[1]])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
