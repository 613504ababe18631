"""What is handed to Spark for each kind of master. What a real cluster makes of `k8s://` is not tried here."""

from __future__ import annotations

import pytest

from blockhouse.config.mirror import MirrorSpark
from blockhouse.spark.settings import address_of, settings_of, slots_of

DAEMON = "blockhouse_mirror.work.daemon"
POD = "10.1.2.3"
IN_PODS = MirrorSpark(
    master="k8s://https://kubernetes.default.svc",
    conf={
        "spark.kubernetes.container.image": "registry/blockhouse/aggregator:1",
        "spark.executor.instances": "3",
        "spark.executor.cores": "2",
        "spark.kubernetes.namespace": "ingest",
        "spark.driver.memory": "1g",
    },
)


def handed(config: MirrorSpark, host: str = "127.0.0.1") -> dict[str, str]:
    return settings_of(config, "blockhouse-mirror-m", DAEMON, host)


def test_executors_in_pods_find_the_driver_its_workers_and_its_secret() -> None:
    found = handed(IN_PODS, POD)

    assert found["spark.master"] == "k8s://https://kubernetes.default.svc"
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == (POD, POD)
    assert found["spark.python.daemon.module"] == DAEMON
    assert (found["spark.authenticate"], found["spark.network.crypto.enabled"]) == ("true", "true")
    assert found["spark.task.maxFailures"] == "1", "a lease is never run twice"
    assert found.items() >= IN_PODS.conf.items()
    assert address_of(IN_PODS, POD) == POD


def test_slots_of_pods_are_those_that_were_asked_for_before_they_are_there() -> None:
    assert slots_of(IN_PODS) == 6
    two_each = IN_PODS.model_copy(update={"conf": IN_PODS.conf | {"spark.task.cpus": "2"}})
    assert slots_of(two_each) == 3


@pytest.mark.parametrize(
    ("master", "slots"),
    [("local", 1), ("local[4]", 4), ("local[4,2]", 4), ("local-cluster[2,3,1024]", 6), ("spark://there:7077", None)],
)
def test_slots_of_other_masters(master: str, slots: int | None) -> None:
    assert slots_of(MirrorSpark(master=master)) == slots


@pytest.mark.parametrize("host", ["127.0.0.1", POD])
@pytest.mark.parametrize("master", ["local[4]", "local-cluster[2,1,1024]"])
def test_a_driver_with_executors_on_its_machine_listens_on_loopback_alone(master: str, host: str) -> None:
    found = handed(MirrorSpark(master=master), host)

    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert address_of(MirrorSpark(master=master), host) == "127.0.0.1"
    assert "spark.authenticate" not in found


def test_a_cluster_of_sparks_own_reaches_the_driver_where_the_gate_is() -> None:
    assert handed(MirrorSpark(master="spark://there:7077"), POD)["spark.driver.host"] == POD
    assert "spark.driver.host" not in handed(MirrorSpark(master="spark://there:7077"))


def test_the_users_settings_come_last() -> None:
    found = handed(MirrorSpark(conf={"spark.driver.memory": "1g", "spark.driver.host": "0.0.0.0"}))

    assert (found["spark.driver.memory"], found["spark.driver.host"]) == ("1g", "0.0.0.0")
