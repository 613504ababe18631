"""What happened, of errors that Spark raises."""

from __future__ import annotations


def cause_of(error: BaseException) -> str:
    """One line: Spark's errors are pages of both languages' stack traces; the last line of ours is what happened."""
    lines = [line for line in str(error).splitlines() if "Error" in line or "Exception" in line]
    return (lines[0] if lines else repr(error)).strip()[:300]
