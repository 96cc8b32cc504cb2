"""KV in motion: what block tables and layouts of both ends make of a transfer over a link."""
