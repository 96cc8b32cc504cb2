"""Request streams: traces, length tables, arrivals, prompts, objectives."""
