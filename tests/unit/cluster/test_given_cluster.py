"""A cluster of another person: used only when it is named without doubt, and refused when Blockhouse is there."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.given import CONTEXT, VARIABLE, GivenCluster, chosen_context, traces, with_token
from e2e.cluster.spec import ClusterError

KUBECTL = """\
#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *"--minify"*) cat {folder}/one.json ;;
  *"config view"*) cat {folder}/whole.json ;;
  *"get customresourcedefinitions"*) cat {folder}/listed ;;
esac
"""


class Programs:
    """A kubectl that notes what it is asked and prints what a file holds."""

    def __init__(self, folder: Path, listed: str = "", contexts: tuple[str, ...] = ("kind-a",)) -> None:
        self.log, self.path = folder / "asked", folder / "kubectl"
        self.path.write_text(KUBECTL.format(log=self.log, folder=folder))
        self.path.chmod(0o755)
        (folder / "whole.json").write_text(json.dumps(kubeconfig(*contexts)))
        (folder / "one.json").write_text(json.dumps(kubeconfig(*contexts[:1])))
        (folder / "listed").write_text(listed)
        self.source = folder / "theirs"
        self.source.write_text("")

    def __getitem__(self, name: str) -> str:
        return str(self.path)

    @property
    def asked(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


def kubeconfig(*contexts: str) -> dict[str, Any]:
    return {
        "current-context": contexts[0] if contexts else "",
        "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}} for name in contexts],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443"}} for name in contexts],
        "users": [{"name": "admin", "user": {"client-key-data": "the administrator's key"}}],
    }


def test_nothing_is_given_unless_it_is_named_whatever_kubectl_would_use(tmp_path: Path) -> None:
    assert GivenCluster.of({"KUBECONFIG": "/root/.kube/config", CONTEXT: "prod"}, tmp_path) is None
    assert GivenCluster.of({VARIABLE: ""}, tmp_path) is None


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="/no/such is no file"):
        GivenCluster(Path("/no/such"), "", tmp_path, Programs(tmp_path))


def test_of_several_contexts_one_must_be_named_even_if_one_is_current() -> None:
    source = Path("theirs")
    assert chosen_context(kubeconfig("kind-a"), "", source) == "kind-a"
    assert chosen_context(kubeconfig("kind-a", "prod"), "kind-a", source) == "kind-a"
    with pytest.raises(ClusterError, match=f"2 contexts: choose one with {CONTEXT}: kind-a, prod"):
        chosen_context(kubeconfig("kind-a", "prod"), "", source)
    with pytest.raises(ClusterError, match="no context staging"):
        chosen_context(kubeconfig("kind-a", "prod"), "staging", source)
    with pytest.raises(ClusterError, match="0 contexts"):
        chosen_context({"contexts": None}, "", source)


def test_another_installation_is_recognised_by_its_definitions_or_its_namespace() -> None:
    crd = "customresourcedefinition.apiextensions.k8s.io/"
    listed = [f"{crd}blockaggregators.ingest.blockhouse.dev", f"{crd}certificates.cert-manager.io", "namespace/default"]
    assert traces(listed) == listed[:1]
    assert traces(["namespace/blockhouse-system", "namespace/other"]) == ["namespace/blockhouse-system"]
    assert traces(listed[1:]) == []


def test_where_blockhouse_is_installed_nothing_is_changed(tmp_path: Path) -> None:
    programs = Programs(tmp_path, listed="namespace/default\nnamespace/blockhouse-system\n")
    cluster = GivenCluster(programs.source, "", tmp_path / "own", programs)
    with pytest.raises(ClusterError, match=r"context kind-a \(https://kind-a:6443\) has namespace/blockhouse-system"):
        cluster.__enter__()

    assert [line for line in programs.asked.splitlines() if "config view" not in line and " get " not in line] == []


def test_what_was_created_is_removed_and_nothing_else(tmp_path: Path) -> None:
    programs = Programs(tmp_path, listed="namespace/default\n")
    cluster = GivenCluster(programs.source, "", tmp_path / "own", programs)
    cluster.helm = lambda *arguments, timeout=120: "[]"  # type: ignore[method-assign]
    with cluster:
        cluster.make_namespace("scenario-1")

    (deleted,) = [line for line in programs.asked.splitlines() if "delete namespace" in line]
    assert deleted.endswith("--timeout=300s blockhouse-system scenario-1")


def test_a_copy_of_the_context_is_used_that_others_cannot_read(tmp_path: Path) -> None:
    programs = Programs(tmp_path, contexts=("kind-a", "prod"))
    cluster = GivenCluster(programs.source, "kind-a", tmp_path / "own", programs)

    assert cluster.kubeconfig != programs.source
    assert "prod" not in cluster.kubeconfig.read_text()
    assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600
    assert cluster.server == "https://kind-a:6443"
    with pytest.raises(ClusterError, match="own_cluster"):
        _ = cluster.audit


def test_an_operator_has_its_own_token_and_not_the_administrators_key() -> None:
    admin = kubeconfig("kind-a")
    own = with_token(admin, "abc")

    assert own["users"] == [{"name": "admin", "user": {"token": "abc"}}]
    assert own["clusters"] == admin["clusters"]
    assert "client-key-data" in admin["users"][0]["user"], "the administrator's stays as it was"
