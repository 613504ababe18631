"""XML as ClickHouse's configuration has it: elements of texts."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element, SubElement, indent, tostring


def put(parent: Element, name: str, values: Mapping[str, str]) -> None:
    """Add an element that has one of each name, with its text."""
    section = SubElement(parent, name)
    for key, value in values.items():
        SubElement(section, key).text = value


def document(root: Element) -> str:
    """The file, indented."""
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=False) + "\n"
