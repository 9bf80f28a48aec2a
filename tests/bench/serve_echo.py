"""A bare grpc.aio server that returns what it is sent: the yardstick of the bench."""

import asyncio
import sys

import grpc

OPTIONS = [
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 20_000),
]
"""Else gRPC cancels some of more than 1,000 calls that begin at once."""


class Echo(grpc.GenericRpcHandler):
    """Answers /bench.Echo/Unary and /bench.Echo/Stream with the bytes of each request."""

    def service(self, handler_call_details):
        """Finds the handler of a method."""
        handlers = {
            "/bench.Echo/Unary": grpc.unary_unary_rpc_method_handler(self._unary),
            "/bench.Echo/Stream": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        return handlers.get(handler_call_details.method)

    async def _unary(self, request, context):
        return request

    async def _stream(self, requests, context):
        async for request in requests:
            yield request


async def main():
    """Serves on a free port, says which on stdout, and runs until it is killed."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"echo serves on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
