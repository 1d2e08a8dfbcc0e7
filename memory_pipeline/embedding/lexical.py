"""Sparse vectors for the lexical branch, by the BM25 analyser of the search engine itself (no server, no model).

What the analyser does with a text, as tried on qdrant-edge-py 0.9.0:

- Words are runs of letters and digits: `cod_paz`, `mem-0001`, `12.5` and `public.fact_procedure` fall apart at their
  signs, `abc123` and `30giorni` stay whole. camelCase stays whole too: the embedding profile splits it beforehand.
- An apostrophe of either form parts words, and what stands before it in Italian (`l'`, `dell'`) is a stop word.
- Its stop words are the full Snowball lists, 279 in Italian and 179 in English. It compares them after folding
  accents, so that with folding `perché` and `più` would count as words: their folded forms are given to it besides.
- Its stemmers are Snowball's: `pazienti ricoverati` and `paziente ricoverato` are the same two terms in Italian, and
  four in English. Its language is English where none is given, so it is always given.
- Term ids are hashes below 2^31. A zero-width space parts words; a lone surrogate raises.

Accents are folded on both sides (`attivita'` typed without them finds `attività`), after NFKC, which also undoes the
ligatures of texts copied from PDF files.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from qdrant_edge import Bm25, Bm25Config, Language, StopwordsSet
from qdrant_edge import SparseVector as EngineVector

from memory_pipeline.core.languages import require_language
from memory_pipeline.core.profile import EmbeddingProfile
from memory_pipeline.core.text import require_storable

ANALYSER = "qdrant-bm25:1"
"""Name and version of the tokenisation. Raise the version with every change here, and with every release of the engine
under which the golden vectors of the tests differ: points of two analysers cannot be compared."""

_STOP_WORDS = {"italian": Language.Italian, "english": Language.English}
_FOLDED_STOP_WORDS = {
    "italian": frozenset({"avra", "avro", "fara", "faro", "perche", "piu", "sara", "saro", "stara", "staro"}),
    "english": frozenset[str](),
}


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Term ids in rising order, each once, and the weight of each. Both are empty for a text of stop words alone."""

    indices: tuple[int, ...]
    values: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.indices)


class LexicalEncoder:
    """BM25 for one language and one embedding profile. Threads may share one."""

    def __init__(self, language: str, profile: EmbeddingProfile) -> None:
        """Build the analyser.

        Args:
            language: `it` or `en`.
            profile: gives k1, b and the average length, a constant so that a card's vector depends on the card alone.

        Raises:
            UnknownLanguage: no analyser for the language.
        """
        name = require_language(language)
        self.analyser = analyser_of(language, profile)
        self._documents = _analyser(name, k=profile.bm25_k1, b=profile.bm25_b, average=profile.bm25_average_length)
        # A word said twice in a question counts more than once, and less than twice: the same saturation as in a card,
        # without its length. Better on Italian questions than counting each word once, and no worse on English ones.
        self._queries = _analyser(name, k=profile.bm25_k1, b=0.0, average=profile.bm25_average_length)

    def document(self, text: str) -> SparseVector:
        """The term weights of a card's lexical text. The server multiplies by IDF.

        Raises:
            BadText: the text is not valid Unicode, or holds a NUL.
        """
        return _encode(self._documents.embed_document, text)

    def query(self, text: str) -> SparseVector:
        """The term weights of a question: 1 for a word said once.

        Raises:
            BadText: the text is not valid Unicode, or holds a NUL.
        """
        return _encode(self._queries.embed_document, text)


def analyser_of(language: str, profile: EmbeddingProfile) -> str:
    """The analyser with its language and numbers: equal exactly where two vectors can be compared."""
    numbers = f"k1={profile.bm25_k1:g};b={profile.bm25_b:g};average={profile.bm25_average_length:g}"
    return f"{ANALYSER};{language};{numbers}"


@lru_cache(maxsize=16)
def encoder_of(language: str, profile: EmbeddingProfile) -> LexicalEncoder:
    """The encoder of a language and profile, built once a process. Raises as `LexicalEncoder` does."""
    return LexicalEncoder(language, profile)


def _analyser(language: str, *, k: float, b: float, average: float) -> Bm25:
    stop_words = StopwordsSet(languages={_STOP_WORDS[language]}, custom=set(_FOLDED_STOP_WORDS[language]))
    return Bm25(Bm25Config(k=k, b=b, avg_len=average, language=language, ascii_folding=True, stopwords=stop_words))


def _encode(embed: Callable[[str], EngineVector], text: str) -> SparseVector:
    vector = embed(unicodedata.normalize("NFKC", require_storable(text, "a text for the lexical analyser")))
    pairs = sorted(zip(vector.indices, vector.values, strict=True))
    return SparseVector(indices=tuple(index for index, _ in pairs), values=tuple(value for _, value in pairs))
