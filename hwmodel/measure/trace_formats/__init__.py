"""Text formats of access traces, a file each."""
