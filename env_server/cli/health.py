"""`railgym health`: asks a server whether it serves, as a container's health check does.

It uses the standard gRPC health service and imports no part of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from env_server.cli.exits import Exit, Failure, failing_on
from env_server.cli.options import (
    DEFAULT_ADDRESS,
    Json,
    TlsCa,
    TlsCert,
    TlsKey,
    host_and_port,
)
from env_server.cli.output import print_json

if TYPE_CHECKING:
    from grpc_health.v1.health_pb2_grpc import HealthStub

ANSWER_SECONDS = 5.0


def health(
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the server is.")
    ] = DEFAULT_ADDRESS,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Wait so long for it to serve.")
    ] = 0.0,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
) -> None:
    """Say whether a server serves.

    Prints SERVING and exits with 0; with 1 where it answers that it does not serve, and with 3
    where it does not answer. No token is needed.

    `railgym health --wait 10 && python my_agent.py`
    """
    import grpc
    from grpc_health.v1.health_pb2 import HealthCheckResponse
    from grpc_health.v1.health_pb2_grpc import HealthStub

    from railgym.credentials import tls_credentials

    with failing_on(OSError, ValueError):
        credentials = tls_credentials(tls_ca, tls_cert, tls_key)
    at = host_and_port(address)
    channel = grpc.secure_channel(at, credentials) if credentials else grpc.insecure_channel(at)
    with channel:
        try:
            status = _ask(HealthStub(channel), wait)
        except grpc.RpcError as e:
            why = f"within {wait:g} s" if wait else str(e.details())
            message = f"expected a server at {address}, got no answer: {why}"
            raise Failure(message, Exit.NO_SERVER) from e
    word = HealthCheckResponse.ServingStatus.Name(status)
    print_json({"address": address, "status": word}) if as_json else typer.echo(word)
    raise typer.Exit(Exit.OK if status == HealthCheckResponse.SERVING else Exit.BAD)


def _ask(stub: HealthStub, wait: float) -> int:
    """Asks once, or waits for a server to come up and to serve."""
    import grpc
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

    check, watch = stub.Check, stub.Watch  # type: ignore[attr-defined]  # not in its stubs
    if not wait:
        return int(check(HealthCheckRequest(), timeout=ANSWER_SECONDS).status)
    status = None
    try:
        for reply in watch(HealthCheckRequest(), timeout=wait, wait_for_ready=True):
            status = int(reply.status)
            if status == HealthCheckResponse.SERVING:
                break
    except grpc.RpcError:
        if status is None:
            raise
    return HealthCheckResponse.UNKNOWN if status is None else status
