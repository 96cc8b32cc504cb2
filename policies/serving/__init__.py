"""A serving run: replicas, clusters, metrics, logs."""
