"""The JSON-RPC door: HTTP and SSE over a Unix socket."""
