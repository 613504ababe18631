"""docs/metrics.md is what the programs have: generated, and nothing written there by hand."""

from __future__ import annotations

from scripts import metrics_page


def test_the_page_is_as_generated() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.render(), "run scripts/generate"


def test_every_metric_has_words_and_a_name_of_our_own() -> None:
    for family in metrics_page.families():
        assert family.name.startswith("blockhouse_")
        assert len(family.text.split()) >= 2, family


def test_streams_are_named_by_three_labels() -> None:
    assert [family.name for family in metrics_page.families() if "stream" in family.labels] == []
