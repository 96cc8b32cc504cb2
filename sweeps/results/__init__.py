"""Results on disk, how they are read again, and the statistics of replications."""
