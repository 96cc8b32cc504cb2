"""From findings to pages: accounts, charts, templates."""
