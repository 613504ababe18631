"""The one table of what a ClickHouse error code means for a block, and the words a person reads about it.

It decides between "send the same bytes again", "this replica is at fault", "the shard is at fault" and "never". A code
in the wrong row costs availability, never data. An unknown code is always worth a retry. It must never import the
client library: `client.py` hands codes and texts over.
"""

from __future__ import annotations

from enum import StrEnum

from blockhouse.errors import BlockhouseError, Permanent, Retryable


class Fault(StrEnum):
    """Whose fault a retryable error is; the block is resent, byte by byte the same, in every case."""

    RESEND = "resend"
    """No one's in particular: the fate of the insert is unknown or the server was busy. Resend soon."""
    REPLICA = "replica"
    """The local replica is down, read-only, full or cut off from ZooKeeper: another replica may do better."""
    SHARD = "shard"
    """No replica can write this table with quorum now: no other aggregator would do better, wait loudly."""


class ServerFault(Retryable):
    """A ClickHouse error after which the same request may succeed. `fault` names what to suspect."""

    def __init__(self, message: str, *, fault: Fault, after: float = 0.2, code: int | None = None) -> None:
        super().__init__(message, after=after, code=code)
        self.fault: Fault = fault


TOO_MANY_PARTS = 252
READONLY = 164
NOT_IN_QUORUM = 289

_RETRYABLE: dict[int, tuple[Fault, float]] = {
    # code: (fault, least wait in seconds)
    319: (Fault.RESEND, 0.2),  # UNKNOWN_STATUS_OF_INSERT: quorum not reached in time, the part may yet get it
    286: (Fault.RESEND, 0.2),  # UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE: an earlier part still waits for its quorum
    285: (Fault.SHARD, 1.0),  # TOO_LESS_LIVE_REPLICAS: fewer live replicas than the quorum
    254: (Fault.SHARD, 1.0),  # NO_ACTIVE_REPLICAS
    NOT_IN_QUORUM: (Fault.REPLICA, 0.5),  # REPLICA_IS_NOT_IN_QUORUM: it lacks a part, its peers have it
    242: (Fault.REPLICA, 1.0),  # TABLE_IS_READ_ONLY: no ZooKeeper session, or still starting
    243: (Fault.REPLICA, 5.0),  # NOT_ENOUGH_SPACE
    225: (Fault.REPLICA, 1.0),  # NO_ZOOKEEPER
    999: (Fault.REPLICA, 0.5),  # KEEPER_EXCEPTION: session lost in mid-insert, the fate is unknown
    224: (Fault.REPLICA, 1.0),  # REPLICA_IS_ALREADY_ACTIVE: the old session of a restarted server has not expired
    236: (Fault.REPLICA, 1.0),  # ABORTED: shutting down
    667: (Fault.REPLICA, 1.0),  # NOT_INITIALIZED: tables are still being loaded
    198: (Fault.REPLICA, 1.0),  # DNS_ERROR
    # The login of one replica is an operator's mistake of that replica: it heals by itself when corrected.
    192: (Fault.REPLICA, 5.0),  # UNKNOWN_USER
    193: (Fault.REPLICA, 5.0),  # WRONG_PASSWORD
    194: (Fault.REPLICA, 5.0),  # REQUIRED_PASSWORD
    195: (Fault.REPLICA, 5.0),  # IP_ADDRESS_NOT_ALLOWED
    516: (Fault.REPLICA, 5.0),  # AUTHENTICATION_FAILED
    217: (Fault.REPLICA, 5.0),  # CLIENT_HAS_CONNECTED_TO_WRONG_PORT
    159: (Fault.RESEND, 0.5),  # TIMEOUT_EXCEEDED
    209: (Fault.RESEND, 0.5),  # SOCKET_TIMEOUT
    210: (Fault.RESEND, 0.5),  # NETWORK_ERROR
    241: (Fault.RESEND, 1.0),  # MEMORY_LIMIT_EXCEEDED
    TOO_MANY_PARTS: (Fault.RESEND, 2.0),  # merges are behind: back-pressure
    201: (Fault.RESEND, 5.0),  # QUOTA_EXPIRED
    202: (Fault.RESEND, 1.0),  # TOO_MANY_SIMULTANEOUS_QUERIES
    394: (Fault.RESEND, 0.5),  # QUERY_WAS_CANCELLED
    439: (Fault.RESEND, 1.0),  # CANNOT_SCHEDULE_TASK
    745: (Fault.RESEND, 1.0),  # SERVER_OVERLOADED
}

_PERMANENT: dict[int, str] = {
    # code: reason
    60: "UnknownTable",
    81: "UnknownTable",
    218: "UnknownTable",
    7: "ColumnsDiffer",
    8: "ColumnsDiffer",
    9: "ColumnsDiffer",
    10: "ColumnsDiffer",
    15: "ColumnsDiffer",
    16: "ColumnsDiffer",
    20: "ColumnsDiffer",
    44: "ColumnsDiffer",
    47: "ColumnsDiffer",
    122: "ColumnsDiffer",
    53: "TypeMismatch",
    70: "TypeMismatch",
    349: "TypeMismatch",
    368: "TypeMismatch",
    33: "MalformedBlock",
    117: "MalformedBlock",
    48: "NotInsertable",
    115: "UnknownSetting",
    452: "SettingForbidden",
    READONLY: "AccessDenied",
    291: "AccessDenied",
    497: "AccessDenied",
    469: "ConstraintViolated",
}

_HINTS: dict[str, str] = {
    "UnknownTable": "create the table on this replica, or dead-letter its messages",
    "ColumnsDiffer": "the table's columns are not those of the schema revision: roll the new revision out",
    "TypeMismatch": "a column's type is not that of the schema revision: roll the new revision out",
    "MalformedBlock": "the block was encoded wrongly: please report this",
    "NotInsertable": "the table's engine takes no inserts",
    "UnknownSetting": "the server is older than the setting",
    "SettingForbidden": "allow the setting in the constraints of the user's profile",
    "AccessDenied": "grant INSERT and SELECT on the table to the user, with a profile that is not read-only",
    "ConstraintViolated": "a row violates a CONSTRAINT of the table: correct the constraint, or recut the block",
    "TooManyPartitions": "the block touches too many partitions: raise max_partitions_per_insert_block, or recut it",
}


def classify(code: int, text: str, where: str) -> BlockhouseError:
    """The error to raise for server error `code`. `where` names replica and table; `text` is the server's own.

    252 has two meanings: too many parts (merges are behind, retry) and too many partitions in one block (never). So has
    164: a profile that may not write, and an insert with a quorum whose replica has restarted before its old session
    with ZooKeeper was over.
    """
    message = f"{where}: ClickHouse error {code}: {_first_line(text)}"
    if code == TOO_MANY_PARTS and "partitions" in text:
        return _permanent(message, "TooManyPartitions", code)
    if code == READONLY and "Replica is not active" in text:
        return ServerFault(message, fault=Fault.REPLICA, after=1.0, code=code)
    if code in _PERMANENT:
        return _permanent(message, _PERMANENT[code], code)
    fault, after = _RETRYABLE.get(code, (Fault.RESEND, 1.0))
    return ServerFault(message, fault=fault, after=after, code=code)


def unreachable(where: str, text: str) -> ServerFault:
    """No connection to the replica: nothing was sent."""
    return ServerFault(f"{where}: cannot connect: {_first_line(text)}", fault=Fault.REPLICA, after=0.5)


def interrupted(where: str, text: str) -> ServerFault:
    """The connection broke or timed out in the middle: whether an insert is stored is unknown."""
    return ServerFault(f"{where}: connection lost: {_first_line(text)}", fault=Fault.RESEND)


def _permanent(message: str, reason: str, code: int) -> Permanent:
    return Permanent(f"{message} ({_HINTS[reason]})", reason=reason, code=code)


def _first_line(text: str) -> str:
    """The server's sentence without the stack trace that follows it."""
    line = text.split("Stack trace:")[0].strip().splitlines()
    return line[0].removeprefix("DB::Exception: ").rstrip(" .") if line else "no text"
