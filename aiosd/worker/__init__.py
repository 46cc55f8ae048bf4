"""What a capability's program imports to speak with its shim: progress, artifacts, questions, results."""
