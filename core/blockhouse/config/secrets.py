"""Secrets come from the environment or from a file (a mounted Secret), never from the configuration itself."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import model_validator

from blockhouse.config.base import SettingsWithFiles
from blockhouse.errors import Permanent


class SecretRef(SettingsWithFiles):
    """Where a secret is: exactly one of `env` (name of an environment variable) and `file` (path).

    Only the reference is ever stored, logged or sent to a worker; `read` is called where the secret is used.
    """

    env: str | None = None
    """Environment variable with it."""
    file: Path | None = None
    """File with it."""

    @model_validator(mode="after")
    def _one_source(self) -> SecretRef:
        if (self.env is None) == (self.file is None):
            raise ValueError("give exactly one of 'env' and 'file'")
        return self

    @property
    def where(self) -> str:
        """Which variable or file, for people."""
        return f"environment variable {self.env}" if self.env is not None else f"secret file {self.file}"

    def read(self) -> str:
        """The secret. Raises Permanent naming the variable or file when there is none."""
        if self.env is not None:
            value = os.environ.get(self.env)
            if value is None:
                raise Permanent(f"{self.where} is not set", reason="SecretMissing")
            return value
        assert self.file is not None
        try:
            return self.file.read_text().rstrip("\n")
        except OSError as error:
            raise Permanent(f"{self.where} cannot be read: {error.strerror}", reason="SecretMissing") from error
