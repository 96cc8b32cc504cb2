"""The serving floor: requests, workloads, allocators, scheduling and the traffic they cause."""
