"""What of a model and its KV lies in which memory of a card."""
