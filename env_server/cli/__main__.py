"""`python -m env_server.cli` is `railgym`."""

from env_server.cli import main

main()
