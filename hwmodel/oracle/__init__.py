"""What checks a command log: an auditor that reads the YAML and never imports the kernel."""
