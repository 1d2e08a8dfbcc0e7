"""The form in which two texts are compared."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.errors import BadText
from memory_pipeline.core.text import fingerprint, fold, require_storable
from memory_pipeline_tests.nasty import STORABLE_TEXTS, UNSTORABLE_TEXTS

EVERY_SIGN = st.characters()  # lone surrogates among them
TEXTS = st.text(st.sampled_from(".;:,!?… \t\n\u001f\u0345\u0301ιẞßİı") | EVERY_SIGN)


@given(TEXTS)
def test_folding_a_folded_text_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_folding_is_idempotent_on_every_code_point() -> None:
    signs = map(chr, range(sys.maxunicode + 1))
    assert [sign for sign in signs if fold(folded := fold(sign)) != folded] == []


@given(TEXTS, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_every_normal_form_of_a_text_folds_alike(text: str, form: str) -> None:
    assert fold(unicodedata.normalize(form, text)) == fold(text)  # type: ignore[arg-type]


@given(TEXTS)
def test_a_folded_text_never_holds_the_separator_of_a_fingerprint(text: str) -> None:
    assert "\u001f" not in fold(text)


@pytest.mark.parametrize(
    ("written", "folded"),
    [
        ("  Ablazione \t transcatetere\n", "ablazione transcatetere"),
        ("«Ablazione»", "«ablazione»"),
        ("…Ablazione!?…", "ablazione"),
        ("...;:,!?", ""),
        ("fine.  ; ", "fine"),
        ("30.5 giorni, non 31", "30.5 giorni, non 31"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("ﬁbrillazione", "fibrillazione"),
        ("ＣＯＤ＿ＰＡＺ", "cod_paz"),
        ("codice\u00a0paziente", "codice paziente"),
        ("cod_paz = 'A-1'", "cod_paz = 'a-1'"),
        ("", ""),
    ],
)
def test_width_case_white_space_and_outer_punctuation_do_not_count(written: str, folded: str) -> None:
    assert fold(written) == folded


@pytest.mark.parametrize(
    "text", ["Ελληνικά", "العربية", "漢字", "ひらがな", "עברית", "кириллица", "हिन्दी", "ไทย", "한국어", "ა", "😀"]
)
def test_letters_of_every_script_are_kept(text: str) -> None:
    assert fold(text) == unicodedata.normalize("NFKC", text).casefold()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("attività del reparto", unicodedata.normalize("NFD", "attività del reparto")),
        ("attività  del   reparto", "attività del reparto"),
        ("Attività del reparto.", "attività del reparto"),
    ],
)
def test_what_reads_the_same_has_one_fingerprint(one: str, other: str) -> None:
    assert fingerprint(one, one) == fingerprint(other, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("follow-up", "within 5 years"), ("follow-up", "within 6 years")),
        (("αρρυθμία", "α"), ("ανακοπή", "α")),
        (("αρρυθμία", "α"), ("αρρυθμία", "β")),
        (("عدم انتظام", "ا"), ("سكتة", "ا")),
        (("心律不整", "心"), ("心不全", "心")),
        (("ablazione", "per anno"), ("ablazione per", "anno")),
        (("a", "b\u001fc"), ("a\u001fb", "c")),
        (("a", ""), ("", "a")),
        (("resume", "x"), ("résumé", "x")),
        (("soglia", "x = 1.5"), ("soglia", "x = 15")),
        (("soglia", "x > 1"), ("soglia", "x >= 1")),
    ],
)
def test_what_reads_otherwise_has_another_fingerprint(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert fingerprint(*one) != fingerprint(*other)


def test_a_fingerprint_does_not_change_between_releases() -> None:
    """It is stored with every card: another value would let each memory be promoted once more."""
    known = "cdfdccf20da77c25fe9be16aac9b91f962eff83e18eee1d3536b2a4dc7314320"
    assert fingerprint(" Ablazione. ", "COUNT(DISTINCT cod_paz)  per anno") == known


@pytest.mark.parametrize("text", STORABLE_TEXTS.values(), ids=STORABLE_TEXTS)
def test_odd_texts_are_storable_and_come_back_as_they_are(text: str) -> None:
    assert require_storable(text, "the detail") is text


@pytest.mark.parametrize("text", UNSTORABLE_TEXTS.values(), ids=UNSTORABLE_TEXTS)
def test_what_postgresql_cannot_hold_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadText, match="the detail contains"):
        require_storable(text, "the detail")
