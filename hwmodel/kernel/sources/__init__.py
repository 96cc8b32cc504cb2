"""Where the requests to channels come from, a file each: traces, DMA engines, calls of a host."""
