"""What a run says: tables of results, findings, and the sections of its report."""
