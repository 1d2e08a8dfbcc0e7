"""`python -m memory_pipeline` is `memory-pipeline`."""

from memory_pipeline.harness.cli import main

main()
