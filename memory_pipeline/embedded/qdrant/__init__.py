"""A small REST server over the official Qdrant engine, for one machine that has no Qdrant.

It speaks the part of Qdrant's REST API that a vector index needs (collections, aliases, payload indexes, points,
queries) to the unmodified `qdrant-client`, refuses the rest by name, and keeps what it acknowledged when it is killed.
Start it with `python -m memory_pipeline.embedded.qdrant`.
"""
