"""The `railgym` command.

One module for each group of commands, and `app` puts them together. Whatever takes time to import
is imported within the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys

from env_server.cli.exits import Exit


def main() -> None:
    """Runs `railgym`; the entry point that the package installs."""
    # A server that never forks need not pay for being able to. Read when grpc is imported.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    # What gRPC has to say comes as an error too, and that is what we print.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import typer  # noqa: F401
    except ModuleNotFoundError:
        print(
            "railgym: the command line needs the server: pip install 'railgym[server]'",
            file=sys.stderr,
        )
        sys.exit(Exit.WRONG_INPUT)
    from env_server.cli.app import app

    app(prog_name="railgym")
