"""What one asks of a memory: bandwidth, replayed traces, random access, refresh, bounds, energy."""
