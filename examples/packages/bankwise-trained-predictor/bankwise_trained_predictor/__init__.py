"""A predictor of output lengths that is trained on prompts of your own."""
