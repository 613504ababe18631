"""`interserver_http_credentials`, which servers read with their configuration and again whenever it changes.

The engine of the stand-in checks such credentials and uses them; what reads them is not in its library. So this module
does, by ClickHouse's documentation: `user` and `password` are given to peers and accepted, those of every `old` are
accepted too; without the section no peer has to log in.
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from xml.etree import ElementTree

from e2e.standin import SHIM

PERIOD = 1.0
_SECTION = "interserver_http_credentials"

Pairs = tuple[tuple[str, str], ...]
"""User and password, the pair in use first."""


def credentials(config: Path) -> Pairs:
    """What the configuration has now, of which files of `config.d` replace a whole section. Raises ParseError."""
    section = None
    for file in (config, *sorted((config.parent / "config.d").glob("*.xml"))):
        found = ElementTree.parse(file).find(_SECTION)
        section = section if found is None else found
    if section is None:
        return (("", ""),)
    return tuple(_pair(each) for each in (section, *(child for child in section if child.tag.startswith("old"))))


def _pair(parent: ElementTree.Element) -> tuple[str, str]:
    user, password = (_text(parent.find(name)) for name in ("user", "password"))
    return user, password


def _text(element: ElementTree.Element | None) -> str:
    if element is None:
        return ""
    variable = element.get("from_env")
    return os.environ.get(variable, "") if variable else element.text or ""


def follow(config: Path) -> None:
    """Give the engine what the configuration has, now and by a thread whenever that changes."""
    library, given = ctypes.CDLL(str(SHIM)), credentials(config)
    _give(library, given)

    def run() -> None:
        last = given
        while True:
            threading.Event().wait(PERIOD)
            try:
                found = credentials(config)
            except (OSError, ElementTree.ParseError):  # it is being written
                continue
            if found != last:
                _give(library, found)
                last = found

    threading.Thread(target=run, name="credentials", daemon=True).start()


def _give(library: ctypes.CDLL, pairs: Pairs) -> None:
    texts = [text.encode() for pair in pairs for text in pair]
    if library.set_credentials((ctypes.c_char_p * len(texts))(*texts), ctypes.c_size_t(len(pairs))) != 0:
        raise SystemExit("the stand-in takes users and passwords of at most 22 bytes between replicas")
