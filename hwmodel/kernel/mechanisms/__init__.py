"""Mechanisms of a controller, a file each: what they count, and which commands they ask for."""
