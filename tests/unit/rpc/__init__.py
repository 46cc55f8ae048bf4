"""The parts of the JSON-RPC door, one idea at a time."""
