"""The slow, independent model: a plain-Python oracle and an auditor; never imports the kernel."""
