"""The use cases. Each takes its collaborators as arguments and is tested without Dagster."""
