"""The memory of the machine at hand, measured: access patterns, threads, medians with intervals."""
