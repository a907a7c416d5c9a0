"""Array libraries, chunks of rows, threads, files: what the mathematics stands on."""
