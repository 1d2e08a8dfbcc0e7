"""The domain, pure: no input or output, no Dagster, no clients."""
