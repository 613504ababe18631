"""How findings reach people: the store, the timeline, Kubernetes Events."""

from __future__ import annotations

import random
from dataclasses import replace

from blockhouse.config.verifier import KubernetesEvents
from blockhouse.streams import StreamId
from blockhouse_aggregator.verifier.anomalies import Anomalies
from blockhouse_aggregator.verifier.anomaly import Anomaly, Finding, Kind
from blockhouse_aggregator.verifier.events import EventSink, event_of
from blockhouse_aggregator.verifier.timeline import merge

GAP = Anomaly(
    Finding(Kind.GAP, "lost", "7", 10, 19), StreamId("a", "t", 0), "g", "2;before", "2;after", 3, 44, 1_000, 2_000
)
STALL = replace(GAP, finding=Finding(Kind.STALLED, "stands", None, 20, 30), log_offset=45)


def store(most: int = 10) -> tuple[Anomalies, list[Anomaly]]:
    reported: list[Anomaly] = []
    return Anomalies(most, reported.append), reported


def test_an_anomaly_is_reported_once_however_often_it_is_found() -> None:
    anomalies, reported = store()

    anomalies.add(GAP)
    anomalies.add(replace(GAP, found_ms=9_000))

    assert reported == [GAP]


def test_a_lasting_one_counts_while_it_lasts_others_for_the_retention() -> None:
    anomalies, reported = store()
    anomalies.add(GAP)
    anomalies.add(STALL)

    assert anomalies.current(10_000, 5_000) == [STALL]
    anomalies.end(STALL, 11_000)
    assert anomalies.current(10_000, 9_000) == [GAP]
    assert [a.ended_ms for a in reported] == [None, None, 11_000]
    anomalies.add(replace(STALL, found_ms=12_000))
    assert len(reported) == 4, "it stands still again"


def test_what_is_kept_is_bounded_and_what_is_dropped_is_forgotten_everywhere() -> None:
    anomalies, _ = store(most=1)
    anomalies.add(GAP)
    anomalies.add(STALL)

    assert anomalies.dropped("b") == []
    assert (anomalies.unsaved("a"), anomalies.dropped("a")) == ([STALL], [GAP.id])
    assert (anomalies.unsaved("a"), anomalies.dropped("a")) == ([], [])
    anomalies.purge(10**9, 5_000)
    assert anomalies.current(0, 1) == [STALL], "it lasts"
    anomalies.end(STALL, 1_000)
    anomalies.purge(10_000, 5_000)
    assert anomalies.dropped("a") == [STALL.id]


def test_what_could_not_be_saved_is_tried_again() -> None:
    anomalies, _ = store()
    anomalies.add(GAP)
    failed = anomalies.unsaved("a")
    anomalies.not_saved(failed)

    assert anomalies.unsaved("a") == [GAP]


def test_events_of_several_logs_come_out_in_order_when_clocks_differ_by_less_than_the_skew() -> None:
    chance = random.Random(1)
    true = sorted(chance.randrange(10_000) for _ in range(500))
    arriving = sorted(((at, at) for at in true), key=lambda event: event[0] + chance.randrange(200))

    assert [at for at, _ in merge(arriving, 200)] == true


def test_an_event_names_where_and_what_and_no_metadata() -> None:
    about = KubernetesEvents(namespace="n", name="events")

    event = event_of(about, "events", GAP, GAP.report({"7": "db.clicks"}))

    assert event["message"] == "a/t/0 table db.clicks offsets 10..19: lost"
    assert (event["reason"], event["type"]) == ("AnomalyGap", "Warning")
    assert event["involvedObject"]["kind"] == "BlockAggregator"
    assert "2;after" not in str(event)


def test_an_api_that_refuses_does_not_end_the_sink() -> None:
    written: list[str] = []

    class _Api:
        def create_namespaced_event(self, namespace: str, event: dict[str, str], **_: object) -> None:
            if not written:
                written.append("refused")
                raise ConnectionError("no")
            written.append(event["reason"])

    sink = EventSink(KubernetesEvents(namespace="n", name="events"), "events", _Api())
    sink.put(GAP, GAP.report())
    sink.put(STALL, STALL.report())
    sink.close()

    assert written == ["refused", "AnomalyStalled"]
