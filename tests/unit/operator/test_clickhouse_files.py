"""Configuration files that users add: which can be used, and that a missing one takes nothing away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from blockhouse_operator.api.clickhouse_files import MountedFile
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import InvalidSpec
from blockhouse_operator.decide.clickhouse_files import LARGEST, GivenFile, PublishedFiles, plan_files
from blockhouse_operator.desired import clickhouse
from blockhouse_operator.desired.clickhouse_files import (
    LARGEST_FILE,
    USER_SLOTS,
    mounted_keys,
    usable_config,
    usable_users,
)
from blockhouse_operator.desired.pod import template
from blockhouse_operator.desired.spec_hash import spec_hash
from tests.unit.operator.resources import pipeline

MANAGED = "spec.clickhouse.managed"
SPEC = pipeline().spec.clickhouse
HASH = "a" * 64
A, B = GivenFile("a.xml", "<yandex><a>1</a></yandex>"), GivenFile("b.xml", "<yandex><b>2</b></yandex>")
GONE = GivenFile("b.xml", problem="ConfigMap b does not exist", missing=True)
NEW = PublishedFiles(None)


def users(account: str) -> str:
    return f"<clickhouse><users>{account}</users></clickhouse>"


def test_a_file_is_given_to_the_servers_with_the_root_of_ours_and_without_comments() -> None:
    found = usable_config(
        "<clickhouse><!-- why --><storage_configuration><x/></storage_configuration></clickhouse>", SPEC
    )

    assert fromstring(found).tag == "yandex"
    assert "storage_configuration" in found
    assert "why" not in found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<clickhouse>", "no well-formed XML"),
        ("<settings/>", "expected clickhouse or yandex"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><clickhouse/>", "document type"),
        (f"<clickhouse><a>{'x' * LARGEST_FILE}</a></clickhouse>", "KiB"),
        ("<clickhouse><tcp_port>1</tcp_port></clickhouse>", "tcp_port is the operator's"),
        ("<clickhouse><users_config>mine.xml</users_config></clickhouse>", "users_config is the operator's"),
        ("<clickhouse><remote_servers replace='1'/></clickhouse>", "replace"),
        (f"<clickhouse><remote_servers><{SPEC.cluster}/></remote_servers></clickhouse>", "is the operator's"),
    ],
)
def test_what_is_the_operators_or_no_file_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        usable_config(text, SPEC)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (users("<default><password>x</password></default>"), "users/default is the operator's"),
        (users("<cluster-b><password>x</password></cluster-b>"), "users/cluster-b is the operator's"),
        (users("<analyst><password>x</password></analyst>"), "users/analyst is the operator's, or is in the spec"),
        (users("<bob/>"), "users/bob has no password"),
        (users("<bob><password></password></bob>"), "its password is empty"),
        (users("<bob><no_password/><password>x</password></bob>"), "no_password"),
        (users("<bob><password from_env='NOT_THERE'/></bob>"), "is not in the file"),
        ("<clickhouse><users remove='1'/></clickhouse>", "remove"),
        ("<clickhouse><profiles><default><x>1</x></default></profiles></clickhouse>", "profiles/default"),
        ("<clickhouse><quotas><of_analyst/></quotas></clickhouse>", "quotas/of_analyst"),
        ("<clickhouse><zookeeper/></clickhouse>", "expected users, profiles or quotas"),
        (users("<bob><password>x</password><profile>gone</profile></bob>"), "profile gone is neither in the file nor"),
    ],
)
def test_a_file_of_users_takes_nothing_away_and_opens_no_door(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        usable_users(text, SPEC)


def test_users_with_a_password_or_another_login_are_taken() -> None:
    found = usable_users(
        users(
            f"<bob><password_sha256_hex>{HASH}</password_sha256_hex></bob><eve><ldap><server>x</server></ldap></eve>"
        ),
        SPEC,
    )

    assert [one.tag for one in fromstring(found).findall("users/*")] == ["bob", "eve"]


def test_a_user_of_a_file_may_have_a_profile_of_the_spec_or_of_the_file() -> None:
    spec = pipeline((f"{MANAGED}.profiles", [{"name": "analysts"}])).spec.clickhouse
    for name, beside in (("analysts", ""), ("readonly", ""), ("own", "<profiles><own/></profiles>")):
        account = f"<bob><password>x</password><profile>{name}</profile></bob>"
        assert name in usable_users(f"<clickhouse>{beside}<users>{account}</users></clickhouse>", spec)


def test_another_content_is_another_key_and_the_same_one_the_same_key() -> None:
    first, same, other = (
        plan_files(config, (), NEW, "salt") for config in ([A, B], [A, B], [A, GivenFile("b.xml", "<yandex/>")])
    )

    assert first.config == same.config
    assert first.config[0] == other.config[0]
    assert first.config[1].key != other.config[1].key
    assert set(first.data) == {one.key for one in first.config}


def test_a_key_shows_nothing_of_the_content_to_who_does_not_know_the_salt() -> None:
    assert plan_files([A], (), NEW, "one").config != plan_files([A], (), NEW, "other").config


@pytest.mark.parametrize("bad", [GONE, GivenFile("b.xml", problem="it is no well-formed XML")])
def test_while_one_file_cannot_be_used_the_servers_keep_all_that_they_have(bad: GivenFile) -> None:
    before = (MountedFile(name="b.xml", key="config-1.xml"),)

    plan = plan_files([A, bad], (), PublishedFiles(before), "salt")

    assert plan.config == before
    assert plan.problems == (f"b.xml: {bad.problem}",)
    assert (plan.missing, plan.held) == (bad.missing, False)


def test_a_new_pipeline_waits_for_its_files_and_one_that_runs_does_not() -> None:
    assert plan_files([A, GONE], (), NEW, "salt").held
    assert not plan_files([A, GONE], (), PublishedFiles(()), "salt").held
    assert not plan_files((), [GONE], NEW, "salt").held


def test_a_file_of_users_that_cannot_be_used_stays_as_it_was_by_itself() -> None:
    plan = plan_files(
        (), [GONE, A], PublishedFiles((), {"b.xml": "of before", "c.xml": "of a file that was removed"}), "salt"
    )

    assert plan.users == ("a.xml", "b.xml")
    assert plan.data == {USER_SLOTS[0]: A.text, USER_SLOTS[1]: "of before"}


def test_files_that_have_no_room_beside_those_of_before_change_nothing() -> None:
    large = GivenFile("a.xml", "x" * (LARGEST + 1))
    before = (MountedFile(name="a.xml", key="config-1.xml"),)

    plan = plan_files([large], (), PublishedFiles(before), "salt")

    assert plan.config == before
    assert plan.data == {}
    assert "KiB" in plan.problems[0]


def files_of(*config: MountedFile, **more: Any) -> Any:
    return resolve(replace(pipeline(*more.items()), files=config), 0)


def test_a_changed_key_restarts_pods_and_a_pod_mounts_exactly_its_keys() -> None:
    bare, one, two = (
        files_of(),
        files_of(MountedFile(name="a.xml", key="k1")),
        files_of(MountedFile(name="a.xml", key="k2")),
    )
    pod = template(one, one.replicas[0])

    assert len({spec_hash(spec, spec.replicas[0]) for spec in (bare, one, two)}) == 3
    assert list(mounted_keys(pod, "events-clickhouse-files")) == ["k1"]
    assert list(mounted_keys(template(bare, bare.replicas[0]), "events-clickhouse-files")) == []


def test_the_first_file_of_users_restarts_pods_and_no_other_one_does() -> None:
    file = {"name": "a.xml", "text": users("<bob><password>x</password></bob>")}
    path = f"{MANAGED}.userFiles"
    bare, one, two = (files_of(**{path: files}) for files in ([], [file], [file, {**file, "name": "b.xml"}]))

    hashes = [spec_hash(spec, spec.replicas[0]) for spec in (bare, one, two)]

    assert hashes[0] != hashes[1] == hashes[2]
    sources = [
        s for v in template(one, one.replicas[0])["spec"]["volumes"] for s in v.get("projected", {}).get("sources", ())
    ]
    mine = [s["secret"] for s in sources if s.get("secret", {}).get("name") == "events-clickhouse-files"]
    assert [(source["optional"], len(source["items"])) for source in mine] == [(True, 16)]


def test_server_settings_are_set_in_their_section_and_those_of_ours_are_refused() -> None:
    changes = (f"{MANAGED}.settings", {"max_concurrent_queries": "7", "merge_tree/max_suspicious_broken_parts": "3"})
    root = fromstring(clickhouse.server(resolve(pipeline(changes), 0)))

    assert [one.text for one in root.findall("max_concurrent_queries")] == ["7"]
    assert {one.tag for one in root.findall("merge_tree/*")} == {
        "max_suspicious_broken_parts",
        "zookeeper_session_expiration_check_period",
    }
    for name in ("macros/shard", "tcp_port", "a/b/c"):
        with pytest.raises(InvalidSpec):
            pipeline((f"{MANAGED}.settings", {name: "1"}))


def test_users_share_profiles_and_quotas() -> None:
    secret = {"passwordSecretRef": {"name": "x"}}
    made = pipeline(
        (f"{MANAGED}.profiles", [{"name": "small", "settings": {"max_memory_usage": "5", "max_threads": "2"}}]),
        (f"{MANAGED}.quotas", [{"name": "few", "queries": 9}]),
        (
            f"{MANAGED}.users",
            [{"name": "bob", "profile": "small", "quotaName": "few", "settings": {"max_threads": "1"}, **secret}],
        ),
    )
    managed = made.spec.clickhouse.managed
    assert managed is not None

    root = fromstring(clickhouse.users(managed, clickhouse.Passwords({"cluster": "c"}, {"bob": "b"})))

    profile = {one.tag: one.text for one in root.findall("profiles/of_bob/*")}
    assert profile == {"readonly": "1", "max_memory_usage": "5", "max_threads": "1"}
    assert root.findtext("users/bob/quota") == "few"
    assert root.findtext("quotas/few/interval/queries") == "9"


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("profiles", [{"name": "default"}], "taken"),
        ("quotas", [{"name": "of_bob"}], "single users"),
        ("users", [{"name": "bob", "passwordSecretRef": {"name": "x"}, "profile": "none"}], "there is no profile none"),
        ("users", [{"name": "bob", "passwordSecretRef": {"name": "x"}, "quotaName": "n"}], "there is no quota n"),
        ("configFiles", [{"name": "a.xml"}], "exactly one of text"),
        ("configFiles", [{"name": "../a.xml", "text": "x"}], "configFiles"),
    ],
)
def test_what_refers_to_nothing_or_is_taken_is_refused(field: str, value: Any, why: str) -> None:
    with pytest.raises(InvalidSpec, match=why):
        pipeline((f"{MANAGED}.{field}", value))
