"""The hardware floor: device descriptions, DRAM timing, channels, accelerators, model shapes."""
