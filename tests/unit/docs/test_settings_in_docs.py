"""Pages spell a setting as the YAML does: readers copy it from there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blockhouse.config.describe import leaf_fields
from blockhouse.config.mirror import MirrorConfig
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.config.verifier import VerifierConfig

ROOT = Path(__file__).parents[3]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
SPELT = {
    part
    for model in (AggregatorConfig, VerifierConfig, MirrorConfig)
    for field in leaf_fields(model)
    for part in re.split(r"[.\[\]]+", field.path)
    if part != part.lower()
}
IN_PYTHON = {re.sub(r"(?=[A-Z])", "_", name).lower(): name for name in SPELT}


@pytest.mark.parametrize("page", PAGES)
def test_no_setting_is_spelt_as_in_python(page: str) -> None:
    assert len(IN_PYTHON) > 30, "the settings were not found"
    tokens = re.findall(r"`([a-z_.]+)(?=[:`= ])", (ROOT / page).read_text())
    wrong = {token: IN_PYTHON[name] for token in tokens if (name := token.rsplit(".", 1)[-1]) in IN_PYTHON}

    assert wrong == {}, "write what the configuration file has"
