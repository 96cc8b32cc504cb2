"""Free lists of blocks: the order in which freed blocks are handed out again."""
