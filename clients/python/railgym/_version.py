"""The version of Railgym: server, client and log writer."""

__version__ = "0.1.0"
