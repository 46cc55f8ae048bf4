"""The standard pack: one program a module, run as tasks by the manifests in packaging/capabilities.d."""
