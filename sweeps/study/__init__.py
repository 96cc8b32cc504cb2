"""Everything Optuna: search spaces, trials, the finale."""
