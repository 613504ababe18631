"""Shell scripts of a replica's pod: how ClickHouse is started, judged while it starts, and ended.

They run in the image of ClickHouse and so need no more than /bin/sh, grep and, to ask ZooKeeper, bash and timeout. The
stack of the tests starts its servers by the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

ZOOKEEPER_PATIENCE = 300
"""Seconds for which ZooKeeper is waited for: a current server is of use without it, as it can still be read."""
QUIET_SECONDS = 120
"""A server that neither listens nor works for so long hangs."""
LEAST_TICKS = 20
"""Less processor time (in hundredths of a second) than this in QUIET_SECONDS is no work: who loads parts uses more."""


def start_after_zookeeper(servers: Sequence[str], patience: int = ZOOKEEPER_PATIENCE) -> str:
    """A script that becomes the command given as its arguments, once one of the `servers` (HOST:PORT) serves sessions.

    ClickHouse 18.16 that is started before that ends, or hangs at its start and does not even obey SIGTERM.
    """
    serves = " || ".join(f"serves {quote(host)} {port}" for host, port in map(_host_and_port, servers))
    return f"""\
serves() {{
  ask='exec 3<>"/dev/tcp/$0/$1" && printf srvr >&3 && grep -Eq "Mode:|whitelist" <&3'
  timeout 5 bash -c "$ask" "$1" "$2" 2>/dev/null
}}
trap 'exit 143' TERM
command -v bash >/dev/null || {{ echo "no bash in this image: not waiting for ZooKeeper" >&2; exec "$0" "$@"; }}
end=$(($(date +%s) + {patience}))
reported=
until {serves}; do
  [ -n "$reported" ] || echo "waiting for ZooKeeper before $0 is started" >&2
  reported=yes
  [ "$(date +%s)" -lt "$end" ] || {{ echo "ZooKeeper does not serve: starting $0 without it" >&2; break; }}
  sleep 1
done
trap - TERM
exec "$0" "$@"
"""


def until_started(port: int, *, process: int = 1, quiet: int = QUIET_SECONDS, every: int = 5) -> str:
    """A script that lasts as long as ClickHouse starts: exit code 0 when it listens on `port`, 1 when it hangs.

    Loading many parts takes long and is no failure, for it uses the processor. So does not a server that hangs. While
    `process` has not become the server yet, it waits for ZooKeeper, which is no failure either.
    """
    return f"""\
used() {{ read -r stat </proc/{process}/stat; set -- ${{stat##*) }}; echo $((${{12}} + ${{13}})); }}
last=$(used)
quiet=0
until grep -qs '{_listening(port)}' /proc/net/tcp /proc/net/tcp6; do
  sleep {every}
  read -r name </proc/{process}/comm
  now=$(used)
  quiet=$((quiet + {every}))
  if [ "$name" = sh ] || [ $((now - last)) -ge {LEAST_TICKS} ]; then last=$now; quiet=0; fi
  [ $quiet -lt {quiet} ] || {{ echo "hangs at its start: it does not listen and has not worked for $quiet s"; exit 1; }}
done
"""


def wait_until_closed(port: int, most: int) -> str:
    """A script that ends when no process listens on `port` of the pod, or after `most` seconds.

    It reads the kernel's table, so the image needs nothing but a shell and grep.
    """
    return (
        f"n=0; while [ $n -lt {most} ] && grep -qs '{_listening(port)}' /proc/net/tcp /proc/net/tcp6;"
        " do sleep 1; n=$((n+1)); done"
    )


def _listening(port: int) -> str:
    """What a line of the kernel's table has of a socket that listens on `port`, whatever its address."""
    return f":{port:04X} 0*:0000 0A"


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
