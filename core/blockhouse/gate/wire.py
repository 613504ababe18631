"""How gate messages travel and how both ends prove that they know the application's key.

One JSON object a line. The driver sends a nonce, the task answers it and sends its own, the driver answers that:
neither end obeys a stranger. The connection is not encrypted; rows and passwords never cross it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from pydantic import BaseModel

MAX_LINE = 16 << 20
"""Bytes of the longest message accepted: a catalog of thousands of wide tables fits."""


def new_nonce() -> str:
    return secrets.token_hex(16)


def prove(key: bytes, nonce: str, *claims: object) -> str:
    """The answer to `nonce` by a process that knows `key` and claims to be `claims`."""
    text = "\n".join([nonce, *(str(claim) for claim in claims)])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def proves(key: bytes, proof: str, nonce: str, *claims: object) -> bool:
    return hmac.compare_digest(proof, prove(key, nonce, *claims))


def to_line(message: BaseModel) -> bytes:
    return message.model_dump_json(exclude_defaults=False).encode() + b"\n"
