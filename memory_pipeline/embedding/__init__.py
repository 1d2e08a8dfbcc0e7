"""Texts as vectors: dense ones from an Ollama server, sparse ones from the engine's own BM25 analyser."""
