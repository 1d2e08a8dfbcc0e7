"""What the program does, one module per use case. None knows Dagster: the servers come in as `Services`."""
