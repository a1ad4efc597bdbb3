"""The service under load: `make bench-service`."""
