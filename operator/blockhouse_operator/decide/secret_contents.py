"""Whether the Secrets that pods read have another content than before, by keyed hashes of it. Pure."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from blockhouse_operator.api.pipeline import BlockAggregatorSpec
from blockhouse_operator.api.status import SecretHash
from blockhouse_operator.decide.references import Reference, references, references_of_pods
from blockhouse_operator.desired.spec_hash import digest


def restarting_references(spec: BlockAggregatorSpec) -> tuple[Reference, ...]:
    """What pods read once, when they start: their Secrets, and the ConfigMap of `settingsFrom`. Not the DDL of tables,
    which is the operator's."""
    managed = spec.clickhouse.managed
    settings = references(managed.settings_from) if managed is not None else ()
    return tuple(each for each in references_of_pods(spec) if each.kind == "Secret" or each in settings)


def content_hashes(own: str, contents: Mapping[Reference, str], salt: str) -> tuple[SecretHash, ...]:
    """A hash for each object, of the keys in `contents`. It shows nothing to who does not know the salt, not even
    whether a guessed password is the right one. The first is that of the salt itself, with the name of the Secret
    `own` that has it: hashes of another salt cannot be compared."""
    found = [SecretHash(name=own, hash=_keyed(salt, own))]
    for (kind, name), keys in groupby(sorted(contents), key=lambda each: (each.kind, each.name)):
        whole = json.dumps([kind, name, [[each.key, contents[each]] for each in keys]])
        found.append(SecretHash(name=f"{kind}/{name}" if kind != "Secret" else name, hash=_keyed(salt, whole)))
    return tuple(found)


def changed_contents(last: Sequence[SecretHash], now: Sequence[SecretHash]) -> tuple[str, ...]:
    """Names of the objects that have another content than at the last look; none where they cannot be compared. One
    that was not there then is no change: what refers to it is."""
    before = {each.name: each.hash for each in last}
    changed = tuple(each.name for each in now if before.get(each.name, each.hash) != each.hash)
    return () if now and now[0].name in changed else changed


def restart_hash(spec: BlockAggregatorSpec, last: Sequence[SecretHash], now: Sequence[SecretHash], given: str) -> str:
    """What shards are given: another text than before, `given`, restarts their pods."""
    due = spec.rollout.on_secret_change == "Restart" and changed_contents(last, now)
    return digest([[each.name, each.hash] for each in now]) if due else given


def _keyed(salt: str, text: str) -> str:
    return hmac.new(salt.encode(), text.encode(), "sha256").hexdigest()[:12]
