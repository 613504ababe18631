"""The password with which replicas fetch parts from each other, as a file that servers read again when it changes.

Servers since 22.1 accept further passwords, `<old>`, beside the one that they use themselves. 18.16 takes no notice of
these, and reads the file when it starts. It stands in a Secret: a password is never in a ConfigMap.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, fromstring

from blockhouse_operator.desired.xml import document, put

USER, FILE = "interserver", "interserver.xml"
_SECTION = "interserver_http_credentials"


@dataclass(frozen=True, slots=True)
class PartsLogin:
    """`used` is the password that a server gives its peers; `accepted` are those it accepts beside that one."""

    used: str
    accepted: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"PartsLogin(with {len(self.accepted)} accepted beside the one in use)"


def written(login: PartsLogin) -> str:
    """The file. It takes the place of what `config.xml` has from the container's environment."""
    root = Element("yandex")
    section = SubElement(root, _SECTION, {"replace": "1"})
    SubElement(section, "user").text = USER
    SubElement(section, "password").text = login.used
    for password in login.accepted:
        put(section, "old", {"user": USER, "password": password})
    return document(root)


def parsed(text: str) -> PartsLogin | None:
    """What such a file has; None where there is none, or it was changed by hand."""
    try:
        root = fromstring(text)
    except SyntaxError:  # what ElementTree raises
        return None
    used = root.findtext(f"{_SECTION}/password", "")
    accepted = (each.findtext("password", "") for each in root.iterfind(f"{_SECTION}/old"))
    return PartsLogin(used, tuple(filter(None, accepted))) if used else None
