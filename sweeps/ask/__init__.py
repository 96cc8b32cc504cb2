"""Questions that one call answers, without a run: fit, size, logged reads."""
