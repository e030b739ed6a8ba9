"""What an installation consists of and can do: settings, composition, health checks, migration and import."""
