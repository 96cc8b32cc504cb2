"""Questions about runs and logs of commands, whose answers a report also shows."""
