"""KV-cache allocators, one file a policy, and what they stand on."""
