"""Keeps the reusable knowledge of a text-to-SQL assistant: registry in PostgreSQL, derived index in Qdrant."""
