"""The ZooKeeper of a stack: one standalone server, from Debian's jars; with TLS from those that Spark brings along."""

from __future__ import annotations

import socket
from pathlib import Path

import pyspark

from e2e.stack.server import QUICK_JIT, Server, StackError, render
from e2e.stack.spec import HOST

JARS = (Path("/usr/share/java/zookeeper.jar"), Path("/usr/share/java/slf4j-simple.jar"))


class ZooKeeperServer(Server):
    """Serves sessions at `connect`; with `tls`, those of clients with a certificate at `secure_port` as well.

    `tls` is a folder with `ca.crt` and `server.pem` (key and certificate).
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        port: int,
        dies_with_parent: bool,
        tls: Path | None = None,
        secure_port: int = 0,
    ) -> None:
        super().__init__(name, folder, dies_with_parent=dies_with_parent)
        self.host = HOST
        self.port = port
        self.secure_port = secure_port
        self._tls = tls

    @property
    def connect(self) -> str:
        """host:port, as clients want it."""
        return f"{self.host}:{self.port}"

    def prepare(self) -> list[str]:
        jars = JARS if self._tls is None else (Path(pyspark.__file__).parent / "jars" / "*",)
        for jar in jars:
            if not (jar.parent if jar.name == "*" else jar).exists():
                raise StackError(f"cannot start {self.name}: {jar} is missing, run `make setup`")
        config = self.folder / "zoo.cfg"
        plain = render("zoo.cfg", data=self.folder / "data", host=self.host, port=self.port)
        secure = "" if self._tls is None else render("zoo-tls.cfg", folder=self._tls, port=self.secure_port)
        config.write_text(plain + secure)
        return [
            "java",
            *("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", QUICK_JIT),
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Djute.maxbuffer=4194304",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            *("-cp", ":".join(map(str, jars))),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(config),
        ]

    def answers(self) -> bool:
        """`ruok` is answered before sessions are accepted; `srvr` names a mode only when they are."""
        try:
            return "Mode:" in self._srvr()
        except OSError:
            return False

    def requests(self) -> int:
        """Packets received since the start: requests of all clients, pings among them. Raises OSError."""
        return int(self._srvr().partition("Received: ")[2].split("\n", 1)[0])

    def _srvr(self) -> str:
        with socket.create_connection((self.host, self.port), timeout=1) as connection:
            connection.sendall(b"srvr")
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
