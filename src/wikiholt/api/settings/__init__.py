"""Settings: what can be set, how values are checked, and where they are loaded from."""
