"""Settings of topics and brokers: read with where they come from, and changed one by one.

Only named settings are ever written or removed, and incrementally: a whole-resource write drops what it does not list,
and sensitive values cannot be read back. A refusal is never passed over: the client returns it as a text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import kafka.errors  # type: ignore[import-untyped]
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_fixed

from blockhouse.fleet.kafka_client import KafkaRequests
from blockhouse.fleet.model import Setting, SettingSource

_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": SettingSource.TOPIC,
    "DYNAMIC_BROKER_CONFIG": SettingSource.BROKER,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": SettingSource.CLUSTER,
    "STATIC_BROKER_CONFIG": SettingSource.FILE,
}
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
_ALWAYS_THERE = {TOPIC: "cleanup.policy", BROKER: "message.max.bytes"}
"""The client passes over a resource's error: only the absence of what every resource has shows one."""
UNKNOWN_TOPIC, FORBIDDEN_TOPIC = 3, 29
_LAGGING = Retrying(
    retry=retry_if_result(lambda answer: bool(answer[1])),
    stop=stop_after_attempt(3),
    wait=wait_fixed(0.5),
    retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
)
"""A broker may know of a new topic a moment later than another one."""
UNREADABLE = "ConfigAuthorizationFailedError"
_ERROR = re.compile(r"^(?:\[Error -?\d+\] )?(\w+)(?:: (.*))?$", re.DOTALL)


def describe(
    requests: KafkaRequests,
    kind: ConfigResourceType,
    names: Iterable[str],
    only: Collection[str] | None = None,
    unread: list[str] | None = None,
) -> dict[str, dict[str, Setting]]:
    """Settings by resource and name; `only` those, or all that are not the built-in default.

    Topics that do not exist are left out. Raises Permanent where settings may not be read, for another tool's
    throttle must not look like none; or adds those names to `unread`.
    """
    always = _ALWAYS_THERE[kind]
    asked = sorted({always, *only}) if only is not None else None
    resources = [ConfigResource(kind, name, asked) for name in sorted(names)]
    if not resources:
        return {}
    found, denied = _LAGGING(_read, requests, kind, resources)
    if unread is not None:
        unread += denied
    elif denied:
        right = f"DescribeConfigs --topic {' '.join(denied[:3])}" if kind is TOPIC else "DescribeConfigs --cluster"
        words = f"settings of {kind.name.lower()} {', '.join(denied[:3])}"
        raise requests.refused("they may not be read", words, reason=UNREADABLE, right=right)
    return {
        name: {key: setting for key, setting in _settings(settings) if only is None or key in only}
        for name, settings in found.items()
        if always in settings
    }


def _read(requests: KafkaRequests, kind: ConfigResourceType, resources: list[Any]) -> tuple[dict[str, Any], list[str]]:
    """Settings by name, and the names that exist and have none: they may not be read, or a broker lags behind."""
    found = requests.ask("describe_configs", resources, config_filter="all")[kind.name.lower()]
    absent = [name for name, settings in found.items() if _ALWAYS_THERE[kind] not in settings]
    if kind is BROKER or not absent:
        return found, absent
    return found, [name for name, error in _errors(requests, absent).items() if error != UNKNOWN_TOPIC]


def hidden(requests: KafkaRequests, topics: Collection[str]) -> list[str]:
    """Topics of which this user may not even know whether they exist."""
    return [name for name, error in _errors(requests, topics).items() if error == FORBIDDEN_TOPIC]


def _errors(requests: KafkaRequests, topics: Collection[str]) -> dict[str, int]:
    return {found["name"]: found["error_code"] for found in requests.ask("describe_topics", sorted(topics))}


def change(
    requests: KafkaRequests, kind: ConfigResourceType, name: str, values: Mapping[str, str], removed: Collection[str]
) -> None:
    """Set `values` of one topic or broker and remove the settings named in `removed`; all its others stay.

    Raises Permanent with the broker's words when it refuses any, and then nothing of the resource has changed.
    """
    changes: dict[str, Any] = {key: (AlterConfigOp.SET, str(value)) for key, value in values.items()}
    changes |= dict.fromkeys(removed, (AlterConfigOp.DELETE, None))
    if not changes:  # without names the request would mean the whole resource
        return
    # The client's own check refuses throttle rates: a broker does not list them before they are set.
    answer = requests.ask(
        "alter_configs", [ConfigResource(kind, name, changes)], raise_on_unknown=False, incremental=True
    )
    for result in answer[kind.name.lower()].values():
        if result != "OK":
            right = "AlterConfigs --cluster" if kind is BROKER else f"AlterConfigs --topic {name}"
            _raise(requests, f"settings of {kind.name.lower()} {name} ({', '.join(sorted(changes))})", result, right)


def _raise(requests: KafkaRequests, request: str, result: str, right: str) -> None:
    """Raise what the client returned as a text: `[Error 40] InvalidConfigurationError: Invalid value abc ...`."""
    match = _ERROR.match(result)
    name, words = (match[1], match[2] or match[1]) if match else ("Unknown", result)
    error = getattr(kafka.errors, name, kafka.errors.KafkaError)
    if error.retriable:
        raise requests.unanswered(f"{name}: {words}", request)
    raise requests.refused(words, request, reason=name, right=right)


def _settings(found: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[str, Setting]]:
    for name, setting in found.items():
        source = _SOURCES.get(setting["config_source"])
        if source is not None and setting["value"] is not None:
            yield name, Setting(str(setting["value"]), source)
