"""A small server that speaks Ollama's protocol over a sentence encoder carried in a wheel.

It serves one machine: one model, on loopback, no login. `python -m memory_pipeline.embedded.ollama` starts it.
"""
