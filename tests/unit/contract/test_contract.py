"""The HTTP contract: what older programs wrote is understood, and what they did not write has the stated meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from blockhouse.contract import aggregator, diagnosis, faults, notices, rollouts, throttle, verifier
from blockhouse.contract.aggregator import Phase, StatusPage, counters_of
from blockhouse.contract.base import Endpoint, NotUnderstood
from blockhouse.contract.rollouts import ApplyRequest, HoldRequest
from blockhouse.contract.verifier import Verdict
from blockhouse_aggregator.runtime.stream.reporting import Counters
from tests.contract_values import block, lagging, stream

GOLDEN = Path(__file__).parents[2] / "golden" / "contract" / "7b3d688.jsonl"
ENDPOINTS = (*aggregator.ENDPOINTS, *rollouts.ENDPOINTS, *verifier.ENDPOINTS)
"""Of programs whose answers were recorded."""


@dataclass(frozen=True)
class Recorded:
    """An answer of a real program of that commit."""

    endpoint: Endpoint
    request: Any
    answers: list[dict[str, Any]]


def recorded() -> Iterator[Recorded]:
    for line in GOLDEN.read_text().splitlines():
        entry = json.loads(line)
        found = next(e for e in ENDPOINTS if e.method == entry["method"] and _fits(e.path, entry["path"]))
        answer = entry["answer"]
        yield Recorded(found, entry["request"], answer if found.many else [answer])


def _fits(pattern: str, path: str) -> bool:
    parts, steps = pattern.split("/"), path.split("/")
    return len(parts) == len(steps) and all(p.startswith("{") or p == s for p, s in zip(parts, steps, strict=True))


RECORDED = list(recorded())
PAGES = [each.answers[0] for each in RECORDED if each.endpoint is aggregator.STATUS]
VERDICTS = [each.answers[0] for each in RECORDED if each.endpoint is verifier.VERDICT]


@pytest.mark.parametrize("found", RECORDED, ids=lambda found: f"{found.endpoint.method} {found.endpoint.path}")
def test_recorded_answers_are_parsed_and_written_as_they_were(found: Recorded) -> None:
    for answer in found.answers:
        value = found.endpoint.answer.parse(answer)
        assert value.model_dump(mode="json", by_alias=True, exclude_unset=True) == answer
        assert found.endpoint.answer.parse(value.written()) == value
    if found.request is not None:
        assert found.endpoint.request is not None
        body = found.endpoint.request.model_validate(found.request)
        assert found.endpoint.request.model_validate(body.written()) == body


def test_the_recordings_have_every_answer_and_every_phase_in_them() -> None:
    assert {each.endpoint.answer for each in RECORDED} == {endpoint.answer for endpoint in ENDPOINTS}
    phases = {stream["state"] for page in PAGES for stream in page["streams"]}
    assert phases == set(Phase)
    assert {verdict["verdict"] for verdict in VERDICTS} == {"clean", "anomalies", "unknown"}


LATER = {
    "StatusPage": {"suspended": False, "restart": {"wanted": 0, "seen": 0}, "away": "", "unfit": ""}
    | {"waits": None, "partitions": {}},
    "TableStatus": {"heldSinceMs": 0, "asDeclared": ""},
    "StreamStatus": dict.fromkeys(
        (
            *("stopped", "position", "logEnd", "lag", "seq", "inFlight", "lagging", "highWatermark", "lastStable"),
            *("endsAtMs", "stored", "lagSeconds", "lagByRate", "arriving", "storing", "standing", "letters"),
        )
    ),
    "BlockInFlight": {"sinceMs": 0, "error": ""},
    "LaggingTable": {"distance": None, "reason": "", "sinceMs": 0},
    "Ownership": {"accepted": "", "metadata": None},
    "LogLevel": {"by": "", "why": ""},
    "InitialTable": {"inFlight": None, "cursor": None},
    "ApplyRequest": {"restart": False},
    "DifferenceAnswer": {"statement": ""},
    "FaultRequest": {"count": 1, "skip": 0, "lasts": None, "seconds": 0, "stream": "", "table": ""},
    "OverrideRequest": {"autoRemove": False, "expires": ""},
    "Verdict": {"problems": []},
    "HistoryCoverage": {"unchecked": 0},
    "Coverage": {"unchecked": 0},
}
"""What is not required, by value, and what its absence means. All else is of the first contract: a key is added here
with its meaning when it is added to the contract, and never taken from here."""


def test_only_later_keys_may_be_absent() -> None:
    endpoints = (*ENDPOINTS, *throttle.ENDPOINTS, *faults.ENDPOINTS, *diagnosis.ENDPOINTS)
    schemas = {model for endpoint in endpoints for model in (endpoint.answer, endpoint.request) if model is not None}
    inner = {aggregator.StreamStatus, aggregator.TableStatus, aggregator.StreamCounters, aggregator.BlockInFlight}
    inner |= {aggregator.LaggingTable, aggregator.RaisedAlarm, aggregator.StopReason, notices.Hazard}
    inner |= {notices.TableLetters, notices.StartWait}
    inner |= {diagnosis.TakenOverBlock, diagnosis.InitialMetadata, diagnosis.InitialTable, diagnosis.InitialBlock}
    inner |= {
        faults.ArmedAnswer,
        aggregator.RestartStatus,
        aggregator.Standing,
        verifier.Coverage,
        verifier.HistoryCoverage,
    }
    found = {
        model.__name__: {field.alias or name for name, field in model.model_fields.items() if not field.is_required()}
        for model in schemas | inner
    }
    assert {name: keys for name, keys in found.items() if keys} == {name: set(keys) for name, keys in LATER.items()}


def test_an_absent_later_key_has_its_meaning() -> None:
    page = json.loads(json.dumps(next(page for page in PAGES if page["tables"] and page["streams"])))
    for key in LATER["StatusPage"]:
        page.pop(key, None)
    for table in page["tables"]:
        del table["heldSinceMs"]
    for each in page["streams"]:
        for key in LATER["StreamStatus"]:
            each.pop(key, None)

    found = StatusPage.parse(page)

    assert (found.suspended, found.restart.demanded, found.restart.seen) == (False, 0, 0)
    assert {table.held_since_ms for table in found.tables} == {0}
    assert {(stream.position, stream.lag, stream.stored_below) for stream in found.streams} == {(None, None, None)}
    assert (found.away, found.unfit, found.standing) == ("", "", {})
    assert {(stream.high_watermark, stream.lag_seconds) for stream in found.streams} == {(None, None)}
    assert not any(stream.drained for stream in found.streams), "what is not known is not drained"


def test_a_missing_key_of_the_first_contract_is_an_error_that_names_it() -> None:
    page = PAGES[0]
    for key in page.keys() - LATER["StatusPage"].keys():
        with pytest.raises(NotUnderstood, match=f"^{key}: Field required$"):
            StatusPage.parse({name: value for name, value in page.items() if name != key})
    for key in VERDICTS[0].keys() - LATER["Verdict"].keys():
        with pytest.raises(NotUnderstood, match=f"^{key}: Field required$"):
            Verdict.parse({name: value for name, value in VERDICTS[0].items() if name != key})


def test_an_unknown_key_of_an_answer_is_ignored_and_one_of_a_request_refused() -> None:
    assert StatusPage.parse(PAGES[0] | {"later": 1}) == StatusPage.parse(PAGES[0])
    with pytest.raises(ValueError, match="later"):
        HoldRequest.model_validate({"rollout": "r", "later": 1})


@pytest.mark.parametrize("text", ["", "[]", "null", '{"ready": ', "<html>"])
def test_what_is_no_answer_is_not_understood(text: str) -> None:
    with pytest.raises(NotUnderstood):
        StatusPage.parse(text)


def test_an_error_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(NotUnderstood) as caught:
        StatusPage.parse(PAGES[0] | {"streams": "hunter2"})
    assert "streams" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_request_has_only_what_an_older_aggregator_knows() -> None:
    """The first aggregators knew no `restart` and refuse what they do not know."""
    assert ApplyRequest(ddl="d", rollout="r").written() == {"ddl": "d", "rollout": "r"}
    assert ApplyRequest(ddl="d", rollout="r", restart=True).written() == {"ddl": "d", "rollout": "r", "restart": True}


def test_the_counters_of_the_aggregator_are_those_of_the_contract() -> None:
    assert counters_of(asdict(Counters(rows=7))).rows == 7
    with pytest.raises(TypeError, match="surplus"):
        counters_of({**asdict(Counters()), "surplus": 1})
    with pytest.raises(TypeError, match="rows"):
        counters_of({name: 0 for name in asdict(Counters()) if name != "rows"})


def test_everything_below_the_first_open_block_and_cursor_is_stored() -> None:
    assert stream().stored_below == 30
    assert stream(in_flight=(block(15), block(12))).stored_below == 12
    assert stream(in_flight=(block(12),), lagging=(lagging(7),)).stored_below == 7
    assert stream(state=Phase.STARTING).stored_below is None


def test_a_stream_is_drained_when_nothing_is_left_and_that_is_known() -> None:
    assert stream().drained
    assert not stream(state=Phase.REPLAY).drained
    for rest in ({"in_flight": (block(),)}, {"lagging": (lagging(),)}, {"lag": 1}, {"lag": None}):
        assert not stream(**rest).drained
