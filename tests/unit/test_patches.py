"""The patches that take safeguards away must fit the code as it is: one that does not would show nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.mutations.mutation import FOLDER
from tests.simulation.safeguards import FOLDERS

ROOT = Path(__file__).parents[2]
PATCHES = sorted({path for folder in (FOLDER, *FOLDERS) for path in folder.glob("*.patch")})


@pytest.mark.parametrize("path", PATCHES, ids=[f"{path.parts[-3]}/{path.stem}" for path in PATCHES])
def test_a_patch_fits(path: Path) -> None:
    check = subprocess.run(
        ["git", "apply", "--check", str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert check.returncode == 0, check.stderr
