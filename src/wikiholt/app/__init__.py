"""Settings, composition of the parts, diagnosis, migration and import."""
