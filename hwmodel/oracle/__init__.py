"""The auditor of command logs, which knows a memory by its YAML; never imports the kernel."""
