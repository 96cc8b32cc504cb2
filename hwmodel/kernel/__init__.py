"""The compiled DRAM channel, and what stands before it: address maps, timings, DMA engines."""
