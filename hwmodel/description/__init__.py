"""Strict YAML: what a file says, in typed and checked form, with the place of every mistake."""
