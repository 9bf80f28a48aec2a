"""The gRPC server: sessions on leases, servicers that only translate, and the server's life."""
