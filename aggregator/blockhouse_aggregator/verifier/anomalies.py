"""All that was found wrong, of every cluster, and what it amounts to. Shared by the clusters' threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from blockhouse_aggregator.verifier.anomaly import LASTING, Anomaly


class Anomalies:
    """Anomalies by id, oldest first, `most` of them; `report` is called once for each new one, and when it ends."""

    def __init__(self, most: int, report: Callable[[Anomaly], None]) -> None:
        self._most, self._report = most, report
        self._found: OrderedDict[str, Anomaly] = OrderedDict()
        self._unsaved: set[str] = set()
        self._dropped: dict[str, str] = {}
        self._lock = threading.Lock()

    def add(self, anomaly: Anomaly) -> None:
        """One that is known already, and has not ended, is not reported again."""
        with self._lock:
            known = self._found.get(anomaly.id)
            if known is not None and known.ended_ms is None:
                return
            self._put(anomaly)
        self._report(anomaly)

    def end(self, anomaly: Anomaly, now_ms: int) -> None:
        """A lasting one is over."""
        ended = replace(anomaly, ended_ms=now_ms)
        with self._lock:
            known = self._found.get(anomaly.id)
            if known is None or known.ended_ms is not None:
                return
            self._put(ended)
        self._report(ended)

    def restore(self, anomaly: Anomaly) -> None:
        """Reported before the restart."""
        with self._lock:
            self._put(anomaly)
            self._unsaved.discard(anomaly.id)

    def current(self, now_ms: int, retention_ms: int) -> list[Anomaly]:
        """Those that count, newest first: lasting ones while they last, others for the retention."""
        with self._lock:
            found = list(self._found.values())
        counting = [a for a in found if _counts(a, now_ms, retention_ms)]
        return sorted(counting, key=lambda anomaly: anomaly.found_ms, reverse=True)

    def unsaved(self, cluster: str) -> list[Anomaly]:
        """Those of the cluster that were not handed out by this before."""
        with self._lock:
            found = [self._found[id_] for id_ in self._unsaved if id_ in self._found]
            mine = [anomaly for anomaly in found if anomaly.stream.cluster == cluster]
            self._unsaved -= {anomaly.id for anomaly in mine}
            return mine

    def dropped(self, cluster: str) -> list[str]:
        """Ids of the cluster's anomalies that are kept no more, each handed out once."""
        with self._lock:
            mine = [id_ for id_, of in self._dropped.items() if of == cluster]
            for id_ in mine:
                del self._dropped[id_]
            return mine

    def purge(self, now_ms: int, retention_ms: int) -> None:
        """Keep no more what is older than the retention and does not last."""
        with self._lock:
            for anomaly in list(self._found.values()):
                since = anomaly.found_ms if anomaly.finding.kind not in LASTING else anomaly.ended_ms
                if since is not None and now_ms - since > retention_ms:
                    self._drop(anomaly.id)

    def not_saved(self, anomalies: list[Anomaly]) -> None:
        """Saving them failed."""
        with self._lock:
            self._unsaved |= {anomaly.id for anomaly in anomalies}

    def _put(self, anomaly: Anomaly) -> None:
        self._found[anomaly.id] = anomaly
        self._found.move_to_end(anomaly.id)
        self._unsaved.add(anomaly.id)
        while len(self._found) > self._most:
            self._drop(next(iter(self._found)))

    def _drop(self, id_: str) -> None:
        self._dropped[id_] = self._found.pop(id_).stream.cluster
        self._unsaved.discard(id_)


def _counts(anomaly: Anomaly, now_ms: int, retention_ms: int) -> bool:
    if anomaly.finding.kind in LASTING:
        return anomaly.ended_ms is None
    return now_ms - anomaly.found_ms <= retention_ms
