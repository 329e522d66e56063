"""Ground everything stands on: errors, rounding, intervals, balls, records, progress."""
