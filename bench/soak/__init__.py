"""A service under mixed load for a long time: errors, growth, freshness."""
