"""Experiments: one point, a sweep of points, and how a run comes about."""
