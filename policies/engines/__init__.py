"""Iteration-level schedulers: what the engines share, and each generation of vLLM."""
