"""Who asks, and whether they may: caller identity, polkit, the default-deny policy."""
