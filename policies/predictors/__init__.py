"""Output-length predictors: by law, by confusion table, trained; and what inference costs."""
