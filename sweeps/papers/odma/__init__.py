"""The table of the ODMA paper (arXiv 2512.09427)."""
