"""General helpers: messages, validation, files, processes, hardware limits, versions."""
