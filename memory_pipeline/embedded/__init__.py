"""Servers that come with the package: PostgreSQL, and stand-ins for Qdrant and Ollama.

It serves one machine. Each server speaks its own protocol on the loopback, so that clients use it as they would one
that runs elsewhere.
"""
