"""Settings of a managed ClickHouse, as its XML files.

What differs between replicas of a shard comes from the environment (`from_env`), so that one ConfigMap serves a shard.
`remote_servers` is a file of its own, shared by all shards and read again without a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from blockhouse_operator.api import names
from blockhouse_operator.api.clickhouse import ManagedClickHouse
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec, Replica

REPLICA, HOST, ZOOKEEPER_LOGIN, CLUSTER_PASSWORD = (
    "CLICKHOUSE_REPLICA",
    "CLICKHOUSE_INTERSERVER_HOST",
    "CLICKHOUSE_ZOOKEEPER_LOGIN",
    "CLICKHOUSE_CLUSTER_PASSWORD",
)
"""Variables of the container."""
DATA = "/var/lib/clickhouse"
CLUSTER_USER = "cluster"
"""With which replicas query each other, and the operator asks for tables and their columns."""


def password_variable(user: str) -> str:
    """The variable with a user's password."""
    return f"CLICKHOUSE_PASSWORD_{user.upper()}"


def server(spec: ClickHouseShardIngestSpec) -> str:
    """`config.xml` of a shard's replicas."""
    root = Element("yandex")  # the name that 18.16 knows; newer servers accept it
    _put(root, "logger", {"level": "information", "console": "1"})
    for name, value in {
        "http_port": names.HTTP_PORT,
        "tcp_port": names.NATIVE_PORT,
        "interserver_http_port": names.INTERSERVER_PORT,
    }.items():
        SubElement(root, name).text = str(value)
    # A Service's address per replica: 18.16 keeps the first address of a peer for ever.
    SubElement(root, "interserver_http_host", {"from_env": HOST})
    for address in ("::", "0.0.0.0"):
        SubElement(root, "listen_host").text = address
    for name, text in _SERVER.items():
        SubElement(root, name).text = text
    _zookeeper(root, spec)
    macros = SubElement(root, "macros")
    SubElement(macros, "cluster").text = spec.clickhouse.cluster
    SubElement(macros, "shard").text = str(spec.shard)
    SubElement(macros, "replica", {"from_env": REPLICA})
    _put(root, "distributed_ddl", {"path": f"{spec.zookeeper.root}/ddl"})
    # Noticing an expired session late keeps a resumed replica inactive for a minute.
    _put(root, "merge_tree", {"zookeeper_session_expiration_check_period": "2"})
    return _document(root)


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
        _put(zookeeper, "node", {"host": host, "port": port})
    SubElement(zookeeper, "session_timeout_ms").text = "10000"
    if spec.zookeeper.auth:
        SubElement(zookeeper, "identity", {"from_env": ZOOKEEPER_LOGIN})


_DEFAULT_PROFILE = {
    "log_queries": "0",
    # Of 18.16 half an hour: so long a fetch from a replica that fell silent would keep its part from this one.
    "http_receive_timeout": "30",
    "http_send_timeout": "30",
}


def users(managed: ManagedClickHouse) -> str:
    """`users.xml`: `default` only from the pod itself, `cluster` for other replicas, and whom the spec names."""
    root = Element("yandex")
    profiles = SubElement(root, "profiles")
    _put(profiles, "default", _DEFAULT_PROFILE)
    _put(profiles, "readonly", {"readonly": "1"})
    accounts = SubElement(root, "users")
    own = _account(accounts, "default", "default", ("127.0.0.1", "::1"))
    SubElement(own, "password").text = ""
    everyone = ("::/0",)
    other = _account(accounts, CLUSTER_USER, "default", everyone)
    SubElement(other, "password", {"from_env": CLUSTER_PASSWORD})
    for user in managed.users:
        account = _account(accounts, user.name, "readonly" if user.read_only else "default", everyone)
        SubElement(account, "password", {"from_env": password_variable(user.name)})
    quota = SubElement(SubElement(root, "quotas"), "default")
    _put(quota, "interval", {"duration": "3600", **dict.fromkeys(_UNLIMITED, "0")})
    return _document(root)


_UNLIMITED = ("queries", "errors", "result_rows", "read_rows", "execution_time")


def _account(accounts: Element, name: str, profile: str, networks: Sequence[str]) -> Element:
    account = SubElement(accounts, name)
    _put(account, "networks", {})
    for network in networks:
        SubElement(account[-1], "ip").text = network
    SubElement(account, "profile").text = profile
    SubElement(account, "quota").text = "default"
    return account


def remote_servers(cluster: str, shards: Sequence[Sequence[Replica]]) -> str:
    """The ClickHouse cluster: every replica of every shard, written to through any one of them."""
    root = Element("yandex")
    # Replaces whatever a base image brings along.
    section = SubElement(SubElement(root, "remote_servers", {"replace": "1"}), cluster)
    for replicas in shards:
        shard = SubElement(section, "shard")
        SubElement(shard, "internal_replication").text = "true"
        for replica in replicas:
            entry = SubElement(shard, "replica")
            SubElement(entry, "host").text = replica.host
            SubElement(entry, "port").text = str(names.NATIVE_PORT)
            SubElement(entry, "user").text = CLUSTER_USER
            SubElement(entry, "password", {"from_env": CLUSTER_PASSWORD})
    return _document(root)


def _put(parent: Element, name: str, values: dict[str, str]) -> None:
    section = SubElement(parent, name)
    for key, value in values.items():
        SubElement(section, key).text = value


def _document(root: Element) -> str:
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=False) + "\n"
