"""TLS of a managed ClickHouse: the ports it listens on, its certificate, and how it connects itself."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

from blockhouse.config.endpoints import Tls
from blockhouse_operator.api import names
from blockhouse_operator.api.clickhouse import ManagedClickHouse
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.desired.volumes import server_certificates, zookeeper_login
from blockhouse_operator.desired.xml import put

_PROTOCOLS = {"disableProtocols": "sslv2,sslv3,tlsv1,tlsv1_1"}


def ports(managed: ManagedClickHouse | None) -> dict[str, int]:
    """Elements with the ports that a server listens on. It has one interserver port, with TLS or without."""
    plain = {"http_port": names.HTTP_PORT, "tcp_port": names.NATIVE_PORT}
    secure = {"https_port": names.HTTPS_PORT, "tcp_port_secure": names.SECURE_NATIVE_PORT}
    if managed is not None and managed.secure:
        return {**secure, "interserver_https_port": names.SECURE_INTERSERVER_PORT}
    interserver = {"interserver_http_port": names.INTERSERVER_PORT}
    return {**plain, **(secure if managed is not None and managed.tls else {}), **interserver}


def add(root: Element, spec: ClickHouseShardIngestSpec) -> None:
    """Its certificate, and how it connects itself: to ZooKeeper and, where they demand it, to other replicas."""
    managed, zookeeper = spec.clickhouse.managed, zookeeper_login(spec.zookeeper).tls()
    own = server_certificates(managed.tls).tls() if managed is not None and managed.tls else None
    if own is None and zookeeper is None:
        return
    section = SubElement(root, "openSSL")
    if own is not None:
        files = {"certificateFile": str(own.cert_file), "privateKeyFile": str(own.key_file)}
        # It asks for no client certificate, but reads no authorities of the image either.
        put(section, "server", {**files, "verificationMode": "none", "loadDefaultCAFile": "false", **_PROTOCOLS})
    ca_file = own.ca_file if own is not None and own.ca_file else zookeeper.ca_file if zookeeper is not None else None
    login = zookeeper or Tls()
    trusting = login.verify or (managed is not None and managed.secure)
    paths = {"caConfig": ca_file, "certificateFile": login.cert_file, "privateKeyFile": login.key_file}
    checks = {
        "loadDefaultCAFile": "true" if ca_file is None else "false",
        "verificationMode": "strict" if trusting else "none",
        **_PROTOCOLS,
    }
    put(section, "client", {**{name: str(path) for name, path in paths.items() if path is not None}, **checks})
    # Without it a certificate that is refused is accepted with a line in the log.
    handler = "RejectCertificateHandler" if trusting else "AcceptCertificateHandler"
    put(section[-1], "invalidCertificateHandler", {"name": handler})
