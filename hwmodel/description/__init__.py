"""Strict YAML descriptions: typed, checked, with the place of every mistake."""
