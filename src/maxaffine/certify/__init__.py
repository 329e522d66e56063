"""What is proved: certificates, the theorems behind them, and the independent checker."""
