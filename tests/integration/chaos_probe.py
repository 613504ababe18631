"""What the packet filters and the small disk really do, asked inside namespaces of their own; prints one JSON object.

python -m tests.integration.chaos_probe FOLDER
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from e2e.chaos.delay import DelayProxies
from e2e.chaos.network import FIRST_GROUP, Endpoint, Network, SmallDisk, enter
from e2e.stack.process import wait_until

_ECHO = (
    "import socketserver, sys\n"
    "class Echo(socketserver.BaseRequestHandler):\n"
    "    def handle(self):\n"
    "        while data := self.request.recv(9): self.request.sendall(data)\n"
    "socketserver.ThreadingTCPServer.allow_reuse_address = True\n"
    "socketserver.ThreadingTCPServer(('127.0.0.1', int(sys.argv[1])), Echo).serve_forever()\n"
)
_ASK = (
    "import socket, sys, time\n"
    "began = time.monotonic()\n"
    "try:\n"
    "    with socket.create_connection(('127.0.0.1', int(sys.argv[1])), float(sys.argv[3])) as s:\n"
    "        for _ in range(int(sys.argv[2])): s.sendall(b'x'); assert s.recv(9)\n"
    "    print(time.monotonic() - began)\n"
    "except OSError as error: print(type(error).__name__)\n"
)
SERVERS = {"server": 7001, "bystander": 7002}
GROUPS = {"client": FIRST_GROUP, "server": FIRST_GROUP + 1, "bystander": FIRST_GROUP + 2, "other": FIRST_GROUP + 3}


def as_group(name: str, program: str, *arguments: object) -> list[str]:
    prefix = ["setpriv", "--pdeathsig", "KILL", "--regid", str(GROUPS[name]), "--clear-groups", "--"]
    return [*prefix, sys.executable, "-c", program, *map(str, arguments)]


def ask(client: str, server: str, times: int = 1, patience: float = 1.5) -> str:
    """Seconds that the exchange took, or the name of the error; no step of it may take more than `patience`."""
    command = as_group(client, _ASK, SERVERS[server], times, patience)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def network() -> dict[str, str]:
    endpoints = {name: Endpoint(group, (SERVERS[name],) if name in SERVERS else ()) for name, group in GROUPS.items()}
    net = Network(endpoints)
    servers = [subprocess.Popen(as_group(name, _ECHO, port)) for name, port in SERVERS.items()]
    try:
        for name in SERVERS:
            wait_until(lambda name=name: "Error" not in ask("other", name), timeout=60)  # type: ignore[misc]
        found = {"before": ask("client", "server")}
        net.cut("cut", ["client"], ["server"])
        found |= {"cut": ask("client", "server"), "cut other": ask("other", "server")}
        found["cut bystander"] = ask("client", "bystander")
        net.repair("cut")
        found["healed"] = ask("client", "server")
        net.cut("loss", ["server"], ["client"], share=0.2)
        found["loss"] = ask("client", "server", 20, patience=25)  # retransmissions back off
        net.repair_all()
        proxies = DelayProxies([SERVERS["server"]], 0.2)
        net.redirect("delay", ["client"], SERVERS["server"], proxies.listening[SERVERS["server"]])
        found |= {"delay": ask("client", "server"), "delay other": ask("other", "server")}
        net.repair("delay")
        proxies.close()
        found["after"] = ask("client", "server")
        return found
    finally:
        for server in servers:
            server.kill()
            server.wait()


def disk(folder: Path) -> dict[str, str]:
    small = SmallDisk(folder, 64 << 20)
    small.mount()
    try:
        found = {"empty": write(folder / "a")}
        small.fill()
        found["full"] = write(folder / "b")
        small.relieve()
        found["relieved"] = write(folder / "c")
        return found
    finally:
        small.unmount()


def write(path: Path) -> str:
    try:
        path.write_bytes(os.urandom(1 << 20))
    except OSError as error:
        return os.strerror(error.errno or 0)
    return "written"


def main() -> None:
    enter([sys.executable, "-m", "tests.integration.chaos_probe", *sys.argv[1:]])
    began = time.monotonic()
    found = {"network": network(), "disk": disk(Path(sys.argv[1]))}
    print(json.dumps({**found, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main()
