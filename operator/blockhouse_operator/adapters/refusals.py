"""What an API server refuses, and what is refused to be asked of it, as errors."""

from __future__ import annotations

import json

from blockhouse.errors import BlockhouseError, Permanent, Retryable


class NotFound(Permanent):
    """The object is not there."""


class Conflict(Retryable):
    """The object was changed or created by another client meanwhile: read it again."""


class Unproven(BlockhouseError):
    """Something that is there was to be changed by what the watches reported, which may be old: decide again, by what
    the API server answers now."""


def refusal(status: int, method: str, path: str, text: str) -> Permanent | Retryable:
    """The error for an answer with this HTTP code and text."""
    try:
        parsed = json.loads(text)
        reason, message = parsed.get("reason") or "Unknown", parsed.get("message") or text
    except (ValueError, AttributeError):
        reason, message = "Unknown", text[:500]
    problem = f"{method} {path}: {message} ({status} {reason})"
    if status == 404:
        return NotFound(problem, reason="NotFound", code=status)
    if status == 409:
        return Conflict(problem, after=0.2, code=status)
    if status == 410:
        return Retryable(f"{problem}; the list starts again", after=0.2, code=status)
    if status == 429 or status >= 500 or status == 401:
        return Retryable(problem, after=2.0, code=status)
    return Permanent(problem, reason=reason, code=status)
