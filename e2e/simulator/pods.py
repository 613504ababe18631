"""What a pod was given: the configuration file and token that its container would find, looked up as a kubelet does.

So what the operator renders is read by the models that the real programs read it with; a faulty one is an error here.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from xml.etree.ElementTree import fromstring

from blockhouse.config.load import parse_as
from blockhouse.config.mirror import MirrorConfig
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.config.verifier import VerifierConfig

Json = Mapping[str, Any]
Content = Mapping[str, str]

Lookup = Callable[[str, str], Content]
"""(kind, name) -> text by key of a ConfigMap or Secret in the pod's namespace. KeyError when there is none."""

Config = AggregatorConfig | VerifierConfig | MirrorConfig
"""Of one of the programs that are played."""

ANNOTATION = "simulator.blockhouse.test/play"
ELSEWHERE = "simulator.blockhouse.test/elsewhere"
"""Base URL of a real program that answers for the pod."""
CLICKHOUSE = "simulator.blockhouse.test/clickhouse"
"""Version of the ClickHouse that is played in the pod; without, none answers."""


_FILES = {"configMap": "ConfigMap", "secret": "Secret"}
_VARIABLES = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}


class Unusable(ValueError):
    """The pod's container would not start with what it is given; the text is the reason."""


def command_of(pod: Json, program: str) -> list[str]:
    """The words with which the container `program` runs; empty when the pod has no such container."""
    for container in pod["spec"]["containers"]:
        if container["name"] == program:
            return [*container.get("command", ()), *container.get("args", ())]
    return []


def image_of(pod: Json, program: str) -> str:
    """The image of the container `program`."""
    image: str = _container(pod, program).get("image", "")
    return image


def configuration(pod: Json, program: str, lookup: Lookup) -> Config:
    """The configuration that the container `program` (aggregator, verifier, mirror) is given with `--config`."""
    words = command_of(pod, program)
    if "--config" not in words[:-1]:
        raise Unusable(f"container {program} is not run with --config: {' '.join(words)}")
    path = words[words.index("--config") + 1]
    for name, value in _environment(pod, program).items():
        path = path.replace(f"$({name})", value)
    text = file_of(pod, program, path, lookup)
    if program == "aggregator":
        return parse_as(AggregatorConfig, text, source=path)
    if program == "mirror":
        return parse_as(MirrorConfig, text, source=path)
    return parse_as(VerifierConfig, text, source=path)


def token(pod: Json, program: str, config: Config, lookup: Lookup) -> str | None:
    """The admin API's token, as the container would read it."""
    reference = config.admin.token
    if reference is None:
        return None
    if reference.file is not None:
        return file_of(pod, program, str(reference.file), lookup).rstrip("\n")
    for variable in _container(pod, program).get("env", ()):
        if variable["name"] == reference.env and "secretKeyRef" in variable.get("valueFrom", {}):
            source = variable["valueFrom"]["secretKeyRef"]
            return lookup("Secret", source["name"])[source["key"]]
    raise Unusable(f"container {program} has no variable {reference.env} from a Secret")


def file_of(pod: Json, program: str, path: str, lookup: Lookup) -> str:
    """The content of a file that is mounted into the container. Unusable when nothing is mounted there."""
    target = PurePosixPath(path)
    mounts = sorted(
        _container(pod, program).get("volumeMounts", ()), key=lambda mount: len(mount["mountPath"]), reverse=True
    )
    for mount in mounts:
        root = PurePosixPath(mount["mountPath"])
        if target == root and "subPath" in mount:
            relative = mount["subPath"]
        elif target.is_relative_to(root) and target != root:
            relative = str(target.relative_to(root))
        else:
            continue
        for volume in pod["spec"].get("volumes", ()):
            if volume["name"] == mount["name"]:
                content = _files(volume, lookup)
                if relative in content:
                    return content[relative]
    raise Unusable(f"container {program} finds no file {path}: nothing that is mounted has it")


def _files(volume: Json, lookup: Lookup) -> dict[str, str]:
    """Text by path in a volume of ConfigMaps and Secrets."""
    if "projected" in volume:
        found: dict[str, str] = {}
        for source in volume["projected"]["sources"]:
            found |= _files(source, lookup)
        return found
    for field, kind, name in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
        if field in volume:
            source = volume[field]
            content = lookup(kind, source.get(name) or source["name"])
            if "items" in source:
                return {item["path"]: content[item["key"]] for item in source["items"]}
            return dict(content)
    return {}


def users_of(pod: Json, lookup: Lookup) -> dict[str, str]:
    """Users of the pod's ClickHouse and the hashes of their passwords."""
    found = fromstring(file_of(pod, "clickhouse", "/etc/clickhouse-server/users.xml", lookup)).findall("users/*")
    return {user.tag: user.findtext("password_sha256_hex", "") for user in found}


def claim_of(pod: Json) -> str:
    """Name of the claim of the volume with ClickHouse's data; empty without one."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
    return str(volumes.get("data", {}).get("persistentVolumeClaim", {}).get("claimName", ""))


def missing(pod: Json, lookup: Lookup) -> list[str]:
    """What volumes and variables refer to that is not there: without it no container of the pod could start again."""
    found: list[str] = []
    for kind, name, key in _required(pod):
        try:
            content = lookup(kind, name)
        except KeyError:
            found.append(f"{kind} {name}")
            continue
        if key and key not in content:
            found.append(f"key {key} of {kind} {name}")
    return sorted(set(found))


def _required(pod: Json) -> Iterator[tuple[str, str, str]]:
    """(kind, name, key) of ConfigMaps and Secrets; without a key where all of it is read."""
    for volume in pod["spec"].get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()) or (volume,):
            for field, kind in _FILES.items():
                if (given := source.get(field)) is not None and not given.get("optional"):
                    name = given.get("secretName") or given["name"]
                    yield from ((kind, name, item["key"]) for item in given.get("items") or ({"key": ""},))
    for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
        for variable in container.get("env", ()):
            for field, kind in _VARIABLES.items():
                given = variable.get("valueFrom", {}).get(field)
                if given is not None and not given.get("optional"):
                    yield kind, given["name"], given["key"]


def texts(kind: str, value: Json) -> Content:
    """Text by key of a ConfigMap or Secret as the API server gives it."""
    data: Mapping[str, str] = value.get("data") or {}
    return data if kind == "ConfigMap" else {key: base64.b64decode(text).decode() for key, text in data.items()}


def is_live(pod: Json, program: str) -> bool:
    """The container runs and the pod was not asked to end."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return any(status["name"] == program and status.get("ready") for status in statuses)


def _container(pod: Json, program: str) -> Json:
    container: Json = next(c for c in pod["spec"]["containers"] if c["name"] == program)
    return container


def _environment(pod: Json, program: str) -> dict[str, str]:
    """Variables with plain values, and those that name the pod."""
    found = {}
    for variable in _container(pod, program).get("env", ()):
        if "value" in variable:
            found[variable["name"]] = variable["value"]
        elif (field := variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")) == "metadata.name":
            found[variable["name"]] = pod["metadata"]["name"]
        elif field.startswith("metadata.labels['"):
            found[variable["name"]] = pod["metadata"]["labels"][field[len("metadata.labels['") : -2]]
    return found
