"""Laws of the flag catalog: whatever the parser takes in full is found, whatever is cut or broken is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.catalog.flags import FLAG_VERSIONS, flag_catalog

catalogs = st.sampled_from([flag_catalog(version) for version in FLAG_VERSIONS])


@st.composite
def spelt(draw):
    """A catalog, a spelling of one of its flags, and that flag."""
    catalog = draw(catalogs)
    fact = draw(st.sampled_from(sorted(catalog.flags.values(), key=lambda fact: fact.name)))
    spelling = draw(st.sampled_from([*fact.spellings, *fact.negative]))
    return catalog, spelling, fact


@given(spelt(), st.data(), st.text(max_size=20))
def test_any_mix_of_dashes_and_underscores_with_any_value_is_the_same_flag(case, data, value) -> None:
    catalog, spelling, fact = case
    mixed = spelling
    if spelling.startswith("--"):
        mixed = "--" + "".join(data.draw(st.sampled_from("-_")) if mark == "-" else mark for mark in spelling[2:])
    found = catalog.match(f"{mixed}={value}")
    assert found is not None
    assert found.flag is fact
    assert found.value == value
    assert found.negated == (spelling in fact.negative)


@given(spelt(), st.data())
def test_a_cut_spelling_is_no_match_unless_it_is_another_flag_in_full(case, data) -> None:
    catalog, spelling, _ = case
    cut = spelling[: data.draw(st.integers(0, len(spelling) - 1))]
    found = catalog.match(cut)
    assert found is None or cut in (*found.flag.spellings, *found.flag.negative)


@given(catalogs, st.text(max_size=40))
def test_any_text_gets_an_answer_and_what_is_accepted_is_a_spelling_or_a_prefix_of_one(catalog, text) -> None:
    answer = catalog.explain(text)
    assert answer.reason
    if answer.accepted:
        assert catalog.match(text) is not None or len(catalog.abbreviates(text)) == 1
    else:
        assert answer.replacement
        assert answer.status != "real"
