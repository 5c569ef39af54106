"""A process and its environment: settings, logging, tracing, encryption, ids and caches."""
