"""One module per group of commands; thin, the work is in `operations`."""
