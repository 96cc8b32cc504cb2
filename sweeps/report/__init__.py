"""From findings to pages: presenters, charts, templates."""
