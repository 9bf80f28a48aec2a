"""Generated from proto/railgym/v1; never edited. Made anew by `make stubs`."""
