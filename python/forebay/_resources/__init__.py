"""Memory resources, one class a file."""
