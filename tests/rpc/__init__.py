"""The JSON-RPC door over real sockets, with the whole core behind it or a stand-in."""
