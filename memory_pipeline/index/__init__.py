"""The derived index in Qdrant, over REST.

`points`, `filters` and `queries` hold what goes in and comes out and cost nothing to import; `vector_index` brings the
client, which takes about a second.
"""
