"""A cluster as a Prometheus server knows it: real servers, with series made here."""
