"""Points to rows: workers, resume, the run directory, where a result comes from."""
