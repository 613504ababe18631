"""Settings of a managed ClickHouse, as its XML files.

What differs between replicas of a shard comes from the environment (`from_env`), so that one ConfigMap serves a shard.
Users and `remote_servers` are files of a Secret, shared by all shards and read again without a restart. A password is
never in a ConfigMap, and never an environment variable: one that is missing is an empty password to ClickHouse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from xml.etree.ElementTree import Element, SubElement, fromstring

from blockhouse.config.units import seconds
from blockhouse_operator.api import names
from blockhouse_operator.api.clickhouse import OF_USER, ManagedClickHouse, Quota, User
from blockhouse_operator.api.clickhouse_files import QuotaLimits
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec, Replica
from blockhouse_operator.desired import parts_login, server_tls
from blockhouse_operator.desired.xml import document, put

REPLICA, HOST, ZOOKEEPER_LOGIN, CLUSTER_PASSWORD = (
    "CLICKHOUSE_REPLICA",
    "CLICKHOUSE_INTERSERVER_HOST",
    "CLICKHOUSE_ZOOKEEPER_LOGIN",
    "CLICKHOUSE_CLUSTER_PASSWORD",
)
"""Variables of the container. The last one only of pods made before passwords were files."""
INTERSERVER_PASSWORD = "CLICKHOUSE_INTERSERVER_PASSWORD"
"""Read at the start only, by pods that mount no file with it: see `parts_login`. A container without it does not start,
so it is never taken for empty."""
DATA = "/var/lib/clickhouse"
CLUSTER_USER = "cluster"
"""With which replicas query each other, and the operator asks for tables and their columns."""
LOGIN, USER, PASSWORD = "/etc/clickhouse-server/config.d/remote_servers.xml", "cluster_user", "cluster_password"
"""The file of the Secret in a pod, and the elements in it with which the replicas of one shard query each other."""


@dataclass(frozen=True, slots=True)
class Passwords:
    """Passwords of all users. `cluster` are those with which replicas query each other, by user: the first is the one
    that they use, all are accepted. `users` are the spec's; one without a password is not published."""

    cluster: Mapping[str, str]
    users: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Passwords(of {', '.join([*self.cluster, *self.users])})"


def server(spec: ClickHouseShardIngestSpec) -> str:
    """`config.xml` of a shard's replicas."""
    root = Element("yandex")  # the name that 18.16 knows; newer servers accept it
    put(root, "logger", {"level": "information", "console": "1"})
    managed = spec.clickhouse.managed
    for name, value in server_tls.ports(managed).items():
        SubElement(root, name).text = str(value)
    if managed is not None and managed.interserver_secret_ref is not None:
        credentials = SubElement(root, "interserver_http_credentials")
        SubElement(credentials, "user").text = parts_login.USER
        SubElement(credentials, "password", {"from_env": INTERSERVER_PASSWORD})
    # A Service's address per replica: 18.16 keeps the first address of a peer indefinitely.
    SubElement(root, "interserver_http_host", {"from_env": HOST})
    for address in ("::", "0.0.0.0"):
        SubElement(root, "listen_host").text = address
    given = managed.settings if managed is not None else {}
    for name, text in {**_SERVER, **given}.items():
        _set(root, name, text)
    _zookeeper(root, spec)
    server_tls.add(root, spec)
    if spec.clickhouse.remote_servers == "Shard":
        SubElement(root, "include_from").text = LOGIN
        user, password = {"incl": USER}, {"incl": PASSWORD}
        _list_replicas(root, spec.clickhouse.cluster, [spec.replicas], user, password, secure=spec.clickhouse.secure)
    macros = SubElement(root, "macros")
    SubElement(macros, "cluster").text = spec.clickhouse.cluster
    SubElement(macros, "shard").text = str(spec.shard)
    SubElement(macros, "replica", {"from_env": REPLICA})
    put(root, "distributed_ddl", {"path": f"{spec.zookeeper.root}/ddl"})
    # Noticing an expired session late keeps a resumed replica inactive for a minute.
    if (name := "merge_tree/zookeeper_session_expiration_check_period") not in given:
        _set(root, name, "2")
    return document(root)


def _set(root: Element, name: str, text: str) -> None:
    """Set NAME or SECTION/NAME."""
    section, _, within = name.rpartition("/")
    parent = root.find(section) if section else root
    SubElement(SubElement(root, section) if parent is None else parent, within).text = text


_SERVER = {
    "listen_try": "1",
    "disable_internal_dns_cache": "1",
    "max_connections": "1024",
    "max_concurrent_queries": "200",
    "keep_alive_timeout": "30",
    "uncompressed_cache_size": "0",
    "mark_cache_size": str(1 << 30),
    "timezone": "UTC",
    # A folder below the volume's root: the server refuses a folder that it does not own.
    "path": f"{DATA}/data/",
    "tmp_path": f"{DATA}/data/tmp/",
    "user_files_path": f"{DATA}/data/user_files/",
    "format_schema_path": f"{DATA}/data/format_schemas/",
    "users_config": "users.xml",
    "default_profile": "default",
    "default_database": "default",
    "mlock_executable": "false",
    "dictionaries_config": "none_*.xml",
}


def _zookeeper(root: Element, spec: ClickHouseShardIngestSpec) -> None:
    zookeeper = SubElement(root, "zookeeper")
    for address in spec.zookeeper.servers:
        host, _, port = address.rpartition(":")
        put(zookeeper, "node", {"host": host, "port": port, **({"secure": "1"} if spec.zookeeper.tls else {})})
    SubElement(zookeeper, "session_timeout_ms").text = "10000"
    if spec.zookeeper.auth:
        SubElement(zookeeper, "identity", {"from_env": ZOOKEEPER_LOGIN})


_DEFAULT_PROFILE = {
    "log_queries": "0",
    # Of 18.16 half an hour: so long a fetch from a replica that fell silent would keep its part from this one.
    "http_receive_timeout": "30",
    "http_send_timeout": "30",
}


def users(managed: ManagedClickHouse, passwords: Passwords) -> str:
    """`users.xml`: `default` only from the pod itself, those of other replicas, and whom the spec names and who has a
    password."""
    root = Element("yandex")
    published = [user for user in managed.users if passwords.users.get(user.name)]
    profiles = SubElement(root, "profiles")
    put(profiles, "default", _DEFAULT_PROFILE)
    put(profiles, "readonly", {"readonly": "1"})
    shared = {profile.name: profile.settings for profile in managed.profiles}
    for name, settings in shared.items():  # for users of files: those of the spec have one of their own
        put(profiles, name, {**_DEFAULT_PROFILE, **settings})
    for user in published:
        if user.settings or user.profile:
            basis = {"readonly": "1"} if user.read_only else _DEFAULT_PROFILE
            put(profiles, _profile(user), {**basis, **shared.get(user.profile or "", {}), **user.settings})
    accounts = SubElement(root, "users")
    own = _account(accounts, "default", "default", ("127.0.0.1", "::1"))
    SubElement(own, "password").text = ""
    for name, password in passwords.cluster.items():
        _hashed(_account(accounts, name, "default", _EVERYWHERE), password)
    for user in published:
        account = _account(accounts, user.name, _profile(user), user.networks or _EVERYWHERE, _quota(user))
        _hashed(account, passwords.users[user.name])
        if user.databases:
            allowed = SubElement(account, "allow_databases")
            for database in user.databases:
                SubElement(allowed, "database").text = database
    quotas = SubElement(root, "quotas")
    _interval(quotas, "default", Quota(interval="1h"))
    for shared_quota in managed.quotas:
        _interval(quotas, shared_quota.name, shared_quota)
    for user in published:
        if user.quota is not None:
            _interval(quotas, _quota(user), user.quota)
    return document(root)


_EVERYWHERE = ("::/0",)


def _profile(user: User) -> str:
    if user.settings or user.profile:
        return f"{OF_USER}{user.name}"
    return "readonly" if user.read_only else "default"


def _quota(user: User) -> str:
    return user.quota_name or (f"{OF_USER}{user.name}" if user.quota is not None else "default")


def _interval(quotas: Element, name: str, quota: QuotaLimits) -> None:
    """0 is unlimited."""
    limits = {
        "queries": quota.queries,
        "errors": quota.errors,
        "result_rows": quota.result_rows,
        "read_rows": quota.read_rows,
        "execution_time": round(seconds(quota.execution_time)) if quota.execution_time else 0,
    }
    texts = {limit: str(most) for limit, most in limits.items()}
    put(SubElement(quotas, name), "interval", {"duration": str(round(seconds(quota.interval))), **texts})


def _hashed(account: Element, password: str) -> None:
    SubElement(account, "password_sha256_hex").text = hashlib.sha256(password.encode()).hexdigest()


def _account(accounts: Element, name: str, profile: str, networks: Sequence[str], quota: str = "default") -> Element:
    account = SubElement(accounts, name)
    put(account, "networks", {})
    for network in networks:
        SubElement(account[-1], "ip").text = _subnet(network)
    SubElement(account, "profile").text = profile
    SubElement(account, "quota").text = quota
    return account


def _subnet(network: str) -> str:
    """A network as every server understands it: 18.16 takes `10.0.0.0/8` for the whole of IPv4, as it counts the
    prefix's length among the 128 bits of IPv6."""
    found = ip_network(network, strict=False)
    if found.version == 4 and "/" in network:
        return f"::ffff:{found.network_address}/{96 + found.prefixlen}"
    return network


def remote_servers(
    cluster: str, shards: Sequence[Sequence[Replica]], passwords: Passwords | None = None, *, secure: bool = False
) -> str:
    """The ClickHouse cluster: every replica of every shard, written to through any one of them.

    Without `passwords` for a ConfigMap: that of pods that have the password in their environment.
    """
    user, password = next(iter(passwords.cluster.items())) if passwords else (CLUSTER_USER, "")
    root = Element("yandex")
    of_environment = {"from_env": CLUSTER_PASSWORD}
    _list_replicas(root, cluster, shards, user, password if passwords else of_environment, secure=secure)
    return document(root)


def login(passwords: Passwords) -> str:
    """With which user and password replicas query each other, for servers that list them in their own `config.xml`."""
    user, password = next(iter(passwords.cluster.items()))
    root = Element("yandex")
    SubElement(root, USER).text = user
    SubElement(root, PASSWORD).text = password
    return document(root)


def used_login(text: str) -> tuple[str, str]:
    """User and password of a file that `remote_servers` or `login` wrote; empty where it has none."""
    try:
        root = fromstring(text)
    except SyntaxError:  # what ElementTree raises: it was changed by hand, or is not there
        return "", ""
    replica = root.find(".//replica")
    if replica is None:
        return root.findtext(USER, ""), root.findtext(PASSWORD, "")
    return replica.findtext("user", ""), replica.findtext("password", "")


_Content = str | dict[str, str]
"""Text of an element, or attributes that state where the server finds it."""


def _list_replicas(
    root: Element,
    cluster: str,
    shards: Sequence[Sequence[Replica]],
    user: _Content,
    password: _Content,
    *,
    secure: bool,
) -> None:
    # Replaces whatever a base image brings along.
    section = SubElement(SubElement(root, "remote_servers", {"replace": "1"}), cluster)
    for replicas in shards:
        shard = SubElement(section, "shard")
        SubElement(shard, "internal_replication").text = "true"
        for replica in replicas:
            entry = SubElement(shard, "replica")
            SubElement(entry, "host").text = replica.host
            SubElement(entry, "port").text = str(names.SECURE_NATIVE_PORT if secure else names.NATIVE_PORT)
            if secure:
                SubElement(entry, "secure").text = "1"
            for name, content in (("user", user), ("password", password)):
                if isinstance(content, str):
                    SubElement(entry, name).text = content
                else:
                    SubElement(entry, name, content)


def without_users(text: str, allowed: Sequence[str]) -> str:
    """A `users.xml` of a ConfigMap, in which an earlier operator published users, without those not `allowed`.

    It is never given another user: the environment of the pods that read it has no password for one.
    """
    root = fromstring(text)
    accounts = root.find("users")
    gone = [one for one in accounts or () if one.tag not in ("default", CLUSTER_USER, *allowed)]
    if accounts is None or not gone:
        return text
    for one in gone:
        accounts.remove(one)
    return document(root)
