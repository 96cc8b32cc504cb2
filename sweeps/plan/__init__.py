"""What a YAML file says: axes, variants, points, and what each point is."""
