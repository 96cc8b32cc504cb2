"""What keeps this repository's texts true; no part of what is installed."""
