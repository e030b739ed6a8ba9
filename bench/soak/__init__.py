"""A service under everything at once for a long time: what goes wrong, what grows, how fresh answers are."""
