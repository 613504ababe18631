"""Configuration files that users add to a managed ClickHouse: which can be used, and the Secret that pods mount.

A file of `config.d` is read when a server starts, so another content is another key and another pod. Files of
`users.d` are read again while it runs: their keys are always the same. What is the operator's is refused, for a file
could take its users, its ports or its volume from it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element, ParseError, XMLParser

from blockhouse_operator.api import labels, names
from blockhouse_operator.api.clickhouse import OF_USER, ClickHouseSpec
from blockhouse_operator.api.clickhouse_files import FILES, TAKEN_SETTINGS
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.desired.credentials import USERS
from blockhouse_operator.desired.manifest import Manifest, manifest
from blockhouse_operator.desired.xml import document

LARGEST_FILE = 256 << 10
"""Characters of one file at most."""
USER_SLOTS = tuple(f"user-{number:02}.xml" for number in range(FILES))
"""Keys of the files of users, in their order, and their names in a pod."""
CONFIG = "config-"
"""How the keys of the other files begin."""
SALT = "salt"
"""Key of the text that keeps the keys of others from giving their contents away."""
_ROOTS = ("yandex", "clickhouse")
_PASSWORDS = ("password", "password_sha256_hex", "password_double_sha1_hex")
_OTHER_LOGINS = ("ldap", "kerberos", "ssl_certificates", "ssh_keys")


def config_path(name: str) -> str:
    """Where a pod has a file of the servers: merged after `remote_servers.xml`, which replaces what was before."""
    return f"config.d/user-{name}"


def usable_config(text: str, clickhouse: ClickHouseSpec) -> str:
    """The file as the servers are given it. Raises ValueError, which states what is wrong and quotes nothing of it."""
    root = _parsed(text)
    for section in root:
        if section.tag == "remote_servers":
            _not_replaced(section)
            if any(cluster.tag == clickhouse.cluster for cluster in section):
                raise ValueError(f"remote_servers/{clickhouse.cluster} is the operator's")
        elif section.tag in TAKEN_SETTINGS:
            raise ValueError(f"{section.tag} is the operator's")
    return document(root)


def usable_users(text: str, clickhouse: ClickHouseSpec) -> str:
    """The same of a file of users."""
    assert clickhouse.managed is not None
    root, managed = _parsed(text), clickhouse.managed
    taken = {
        "users": {"default", *USERS, *(user.name for user in managed.users)},
        "profiles": {"default", "readonly", *(profile.name for profile in managed.profiles)},
        "quotas": {"default", *(quota.name for quota in managed.quotas)},
    }
    for section in root:
        if section.tag not in taken:
            raise ValueError(f"{section.tag}: expected users, profiles or quotas")
        _not_replaced(section)
        for one in section:
            if one.tag in taken[section.tag] or one.tag.startswith(OF_USER):
                raise ValueError(f"{section.tag}/{one.tag} is the operator's, or is in the spec")
            if section.tag == "users":
                _has_password(one)
                _has_profile(one, {*taken["profiles"], *(each.tag for each in root.iterfind("profiles/*"))})
    return document(root)


def _parsed(text: str) -> Element:
    if len(text) > LARGEST_FILE:
        raise ValueError(f"it has {len(text) >> 10} KiB, and may have {LARGEST_FILE >> 10}")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("it declares a document type or entities")
    parser = XMLParser()
    try:
        parser.feed(text)
        root: Element = parser.close()
    except ParseError as error:
        raise ValueError(f"it is no well-formed XML: line {error.position[0]}, column {error.position[1]}") from None
    if root.tag not in _ROOTS:
        raise ValueError(f"its root is {root.tag[:64]}, expected clickhouse or yandex")
    root.tag = _ROOTS[0]  # that of our own files: 18.16 merges only files of one root
    return root


def _not_replaced(section: Element) -> None:
    for attribute in ("replace", "remove", "incl", "from_zk"):
        if attribute in section.attrib:
            raise ValueError(f"{section.tag} has the attribute {attribute}, which could take away what is ours")


def _has_password(account: Element) -> None:
    """An account without a password is open to all; one whose password is looked up is so where that is missing."""
    found = [one for one in account if one.tag in _PASSWORDS]
    if any(one.attrib or not (one.text or "").strip() for one in found):
        raise ValueError(f"users/{account.tag}: its password is empty, or is not in the file")
    if not found and not any(one.tag in _OTHER_LOGINS for one in account):
        raise ValueError(f"users/{account.tag} has no password")
    if account.attrib or any(one.tag == "no_password" for one in account):
        raise ValueError(f"users/{account.tag}: neither no_password nor attributes are allowed")


def _has_profile(account: Element, known: Collection[str]) -> None:
    """A server whose user has a profile that does not exist does not start."""
    for profile in account.iterfind("profile"):
        if (name := (profile.text or "").strip()) not in known:
            raise ValueError(f"users/{account.tag}: profile {name[:64]} is neither in the file nor in the spec")


def files_secret(
    pipeline: BlockAggregator, data: Mapping[str, str], users: Sequence[str], kept: Mapping[str, str]
) -> Manifest:
    """The Secret. `data` are texts by key, `users` the names of the files of users in the order of their keys, `kept`
    what pods may mount still, as Kubernetes encodes it."""
    found = manifest(
        "Secret",
        names.clickhouse_files(pipeline.name),
        pipeline.namespace,
        labels=labels.of_pipeline(pipeline.name),
        owner=pipeline.reference(),
        type="Opaque",
        data={**kept, **{key: b64encode(text.encode()).decode() for key, text in data.items()}},
    )
    found["metadata"]["annotations"] = {labels.FILES: " ".join(users)}
    return found


def mounted_keys(pod: Mapping[str, object], secret: str) -> Iterator[str]:
    """Keys of that Secret that a pod, or a pod template, mounts."""
    spec = pod.get("spec")
    for volume in (spec.get("volumes") or ()) if isinstance(spec, dict) else ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            found = source.get("secret") or {}
            if found.get("name") == secret:
                yield from (item["key"] for item in found.get("items") or ())


def total_size(texts: Collection[str]) -> int:
    """Bytes of files together."""
    return sum(len(text.encode()) for text in texts)
