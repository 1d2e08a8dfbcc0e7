"""Cutting long texts: nothing is lost, nothing is too long, and sentences stay whole where they can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.embedding.sentences import pieces, sentences

TEXTS = st.text(st.sampled_from('aè1.,!?…»" \n\t') | st.characters(codec="utf-8"), max_size=300)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Prima frase. Seconda frase! Terza?", ["Prima frase.", "Seconda frase!", "Terza?"]),
        ("Il dott. Rossi, cfr. art. 5, firma. Poi esce.", ["Il dott. Rossi, cfr. art. 5, firma.", "Poi esce."]),
        ("Un valore, p.es. 12.5 mg. Basta così.", ["Un valore, p.es. 12.5 mg.", "Basta così."]),
        ("Vedi S.p.A. Alfa e D.P.R. 44. Fine.", ["Vedi S.p.A. Alfa e D.P.R. 44.", "Fine."]),
        ("Chiede: «È vero?» Risponde di sì.", ["Chiede: «È vero?»", "Risponde di sì."]),
        ("Dr. Smith agrees, i.e. fully. See Fig. 2. Done.", ["Dr. Smith agrees, i.e. fully.", "See Fig. 2.", "Done."]),
        ("one line\nanother line", ["one line", "another line"]),
        ("an aside (e.g. this one). Next", ["an aside (e.g. this one).", "Next"]),
        ("wait... and see. Now", ["wait... and see.", "Now"]),
        ("", []),
        (" \n ", []),
        ("...", ["..."]),
    ],
)
def test_sentences_of_italian_and_english(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_whole_sentences_share_a_piece_where_they_fit() -> None:
    assert pieces("Uno due. Tre quattro. Cinque.", 21) == ["Uno due. Tre quattro.", "Cinque."]


def test_a_long_sentence_is_cut_between_words_and_a_long_word_anywhere() -> None:
    assert pieces("alfa beta gamma", 10) == ["alfa beta", "gamma"]
    assert pieces("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


@given(text=TEXTS, longest=st.integers(1, 60))
def test_nothing_is_lost_and_no_piece_is_too_long(text: str, longest: int) -> None:
    cut = pieces(text, longest)
    assert "".join("".join(cut).split()) == "".join(text.split())
    assert all(0 < len(piece) <= longest for piece in cut)


@given(text=TEXTS)
def test_a_text_that_fits_keeps_its_words_in_one_piece(text: str) -> None:
    assert [piece.split() for piece in pieces(text, 400)] == ([text.split()] if text.split() else [])


@pytest.mark.parametrize("text", ["." * 100_000, ". " * 50_000, ".'" * 50_000, "x" * 100_000, "\n" * 100_000])
def test_a_hostile_text_is_read_once(text: str) -> None:
    """Each of these took minutes with a pattern that starts again at every sign."""
    assert "".join("".join(pieces(text, 1000)).split()) == "".join(text.split())
