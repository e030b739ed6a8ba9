"""The application: settings, composition of the service, health checks, migration and import."""
