"""The kinds of run that need no room of their own: what each has beside the defaults."""
