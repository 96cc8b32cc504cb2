"""The scheduler and block pool of the installed vLLM, under bankwise's clock and memory."""
