"""The experiments floor: sweeps, the result store, reports, the command line. From Python it is
`bankwise` that one imports (`docs/reading-results.md`)."""
