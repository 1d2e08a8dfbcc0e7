"""The languages that the lexical analyser knows: the Snowball stemmers of the engine's own BM25 tokenizer."""

from __future__ import annotations

from memory_pipeline.core.errors import UnknownLanguage

LANGUAGES = {"it": "italian", "en": "english"}
"""ISO 639-1 code to the analyser's name of the language."""


def require_language(code: str) -> str:
    """Return the analyser's name of a language, or raise `UnknownLanguage`, at start rather than deep inside."""
    try:
        return LANGUAGES[code]
    except KeyError:
        raise UnknownLanguage(code, LANGUAGES) from None
