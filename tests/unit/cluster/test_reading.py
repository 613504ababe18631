"""Which kind a name means, and what `get` takes of kubectl's options."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError, current_thread
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.dynamic.resource import Resource, ResourceList

from e2e.cluster.access import Access
from e2e.cluster.reading import Reader
from e2e.cluster.spec import ClusterError


def kind(group: str, version: str, *, preferred: bool = True) -> list[Resource]:
    names = {"name": "events", "singularName": "event", "kind": "Event", "shortNames": ["ev"]}
    return [Resource(prefix="apis", group=group, api_version=version, namespaced=True, preferred=preferred, **names)]


class Client:
    """Answers each list with one object, which names the group that was asked."""

    def __init__(self) -> None:
        self.resources = Kinds(self)

    def get(self, resource: Resource, **options: Any) -> Any:
        item = {"metadata": {"name": f"of {resource.group or 'core'} {resource.api_version}"}}
        return SimpleNamespace(data=json.dumps({"metadata": {}, "items": [item]}))


class Kinds:
    """Every kind has a kind of list beside it, as in the library."""

    def __init__(self, client: Client) -> None:
        listed = ResourceList(client, group="", api_version="v1", base_kind="Event")
        listed.__dict__.update(name="events", singular_name="event", short_names=["ev"])
        later = kind("events.k8s.io", "v1"), kind("events.k8s.io", "v1beta1", preferred=False)
        self._all = [kind("", "v1"), [listed], *later]

    def invalidate_cache(self) -> None: ...

    def __iter__(self) -> Any:
        return iter(self._all)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    found = Reader(tmp_path / "kubeconfig")
    monkeypatch.setattr(found, "_client", Client())
    return found


@pytest.mark.parametrize("name", ["events", "event", "ev"])
def test_a_name_means_the_kind_of_the_core_and_no_kind_of_list(reader: Reader, name: str) -> None:
    (found,) = reader.objects(name, "n", "")

    assert (found["kind"], found["metadata"]["name"]) == ("Event", "of core v1")


def test_two_threads_do_not_discover_at_once(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting, together = Barrier(2), []

    def invalidate(_: Kinds) -> None:
        with suppress(BrokenBarrierError):
            meeting.wait(timeout=0.3)
            together.append(current_thread().name)

    monkeypatch.setattr(Kinds, "invalidate_cache", invalidate)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: reader.objects("events", "n", ""), range(2)))

    assert (len(found), together) == (2, [])


def test_a_name_that_no_kind_has_is_refused(reader: Reader) -> None:
    with pytest.raises(ClusterError, match="no resource of that name"):
        reader.objects("pods", "n", "")


class Asked(Access):
    kubeconfig: Any = None
    audit: Any = None
    kubeconfig_of: Any = None

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._reader: Any = SimpleNamespace(object=self._note, objects=self._note)

    def _note(self, *words: Any) -> None:
        self.calls.append(words)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("csi", "a", "-n", "x"), ("csi", "a", "x")),
        (("csi,pods", "-n", "x", "-l", "k=v"), ("csi,pods", "x", "k=v")),
        (("pods", "-A"), ("pods", None, "")),
        (("nodes",), ("nodes", "default", "")),
    ],
)
def test_an_object_or_a_list_is_asked_for(words: tuple[str, ...], asked: tuple[str | None, ...]) -> None:
    access = Asked()
    access.get(*words)
    assert access.calls == [asked]


def test_an_option_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="not --watch"):
        Asked().get("pods", "-n", "x", "--watch")
