"""Records of either end, as a judge is given them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockhouse_mirror.audit.compare import Records


def made(
    offsets: Sequence[int],
    digests: Sequence[int] = (),
    moments: Sequence[int] = (),
    keys: Sequence[int] = (),
    fleeting: Sequence[int] = (),
) -> Records:
    """Of the same content and moment unless others are given; `keys` by record, none: each has its own; `fleeting` has
    offsets."""
    return Records(
        np.array(offsets, np.int64),
        np.array(digests or [0] * len(offsets), np.uint64),
        np.array(moments or [0] * len(offsets), np.int64),
        np.array(keys or offsets, np.int64),
        np.isin(offsets, list(fleeting)),
    )
