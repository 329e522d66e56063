"""What a person reads: text and figures."""
