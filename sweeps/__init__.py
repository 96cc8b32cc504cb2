"""The experiments floor: sweeps, the result store, reports and the command line."""
