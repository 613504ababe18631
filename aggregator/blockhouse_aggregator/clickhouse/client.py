"""The only module that imports clickhouse_driver: queries, and blocks of ready-made Native bytes, to one replica.

It must never let an insert go out with a header that is not the server's own (18.16 fills misnamed columns with
defaults), never let the driver drop a setting (for 18.16 it does, with a warning), never outlive a block's lifetime.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from clickhouse_driver import Client, defines
from clickhouse_driver import errors as driver
from clickhouse_driver.block import RowOrientedBlock
from clickhouse_driver.protocol import ServerPacketTypes
from clickhouse_driver.settings.available import settings as typed_settings

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.files import unreadable
from blockhouse.errors import Permanent, Retryable
from blockhouse_aggregator.clickhouse.errors import classify, interrupted, unreachable
from blockhouse_aggregator.clickhouse.model import (
    Features,
    Header,
    InsertRequest,
    InsertResult,
    Scalar,
    difference,
    reports_duplicate,
)
from blockhouse_aggregator.clickhouse.names import identifiers, qualified

# The last protocol revision without a serialization byte per column, which our Native bytes do not carry.
REVISION = defines.DBMS_MIN_REVISION_WITH_PARALLEL_REPLICAS

_BLOCK_INFO = b"\x01\x00" + b"\x02\xff\xff\xff\xff" + b"\x00"
_CHUNK = 1 << 20

# Inserts ask for the server's log lines to learn of deduplication; they are data to us and none of our logs' business.
logging.getLogger("clickhouse_driver.log").setLevel(logging.WARNING)

Settings = Mapping[str, Scalar]


class Deadline:
    """One time budget, in seconds, for a whole conversation."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, above 0. Raises TimeoutError when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the insert's lifetime is over")
        return left


class Replica:
    """One replica over one connection, made at the first use and again after it broke. NOT thread-safe.

    `timeout` bounds, in seconds, each wait for the server in queries; inserts have their own lifetime.
    Every method raises ServerFault (retryable) or Permanent. An instance that has not connected yet survives a fork.
    """

    def __init__(self, config: ClickHouse, *, timeout: float = 30.0) -> None:
        self._config = config
        self._timeout = timeout
        self._client: Any = None
        self._features: Features | None = None
        self.name = f"clickhouse {config.host}:{config.port}"

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, settings: Settings | None = None
    ) -> list[tuple[Any, ...]]:
        """Rows of a SELECT; an empty list for statements without a result. `params` fill `%(name)s`, escaped."""
        if settings:
            self._refuse_unknown(settings)
        with self._translated(self.name):
            result = self._connection().execute(sql, dict(params) if params else None, settings=dict(settings or {}))
        return result if isinstance(result, list) else []

    def columns(self, sql: str, params: Mapping[str, Any] | None = None) -> list[Sequence[Any]]:
        """The columns of a SELECT, strings as bytes; an empty list when it gives no row."""
        with self._translated(self.name):
            found: list[Sequence[Any]] = self._connection().execute(
                sql, dict(params) if params else None, columnar=True, settings={"strings_as_bytes": True}
            )
        return found

    def select_from(self, name: str, body: bytes, sql: str) -> Sequence[Any]:
        """The one column that `sql` gives over the external table `name`, whose rows are `body`, one Native block.

        Strings are bytes. In one thread, so that an ORDER BY over few rows costs nothing.
        """
        settings = {"strings_as_bytes": True, "max_threads": 1}
        with self._translated(self.name):
            client = self._connection()
            with client.disconnect_on_error("", settings):
                connection = client.connection
                connection.send_query(sql)
                connection.fout.flush()
                connection.socket.sendall(_packet(name) + body)
                connection.send_external_tables(None)
                columns = client.receive_result(columnar=True)
        return columns[0] if columns else ()

    def features(self) -> Features:
        """What this server can do; asked once per connection, and whether it does: Permanent(SettingForbidden) when it
        has another value of a setting than an insert sends, for a profile may change or ignore what is sent."""
        if self._features is None:
            with self._translated(self.name):
                client = self._connection()
                names = frozenset(name for (name,) in client.execute("SELECT name FROM system.settings"))
                info = client.connection.server_info
                as_text = info.used_revision >= defines.DBMS_MIN_REVISION_WITH_SETTINGS_SERIALIZED_AS_STRINGS
                features = Features(info.version_tuple(), names, as_text)
                effective, logs = _effective_settings(client, features)
                if refused := features.refused(effective):
                    text = f"{self.name}: {refused}: allow it in the constraints of the user's profile"
                    raise Permanent(text, reason="SettingForbidden")
                self._features = replace(features, logs=logs)
        return self._features

    def sample(self, database: str, table: str, columns: Sequence[str]) -> Header:
        """Names and types the server expects in an INSERT of `columns`, at this moment, in that order."""
        with self._translated(f"{self.name}, table {database}.{table}"):
            client = self._connection()
            with client.disconnect_on_error("", None):
                block = _begin_insert(client, database, table, columns)
                client.connection.send_data(RowOrientedBlock())
                client.receive_end_of_insert_query()
        return tuple(block.columns_with_types)

    def insert_native(self, request: InsertRequest) -> InsertResult:
        """Store one block as one Data packet; returns when the server reports that it is stored, with quorum.

        The header must equal the server's own: Permanent(ColumnsDiffer) otherwise, and no row is sent. After any
        other error the fate of the block is unknown: resend the same request (`exact` from then on, for an ALTER in
        between would make it another block to a server without tokens). The call ends, one way or the other,
        within about `request.lifetime` seconds. (The server may work on a little longer, which deduplication covers:
        it stops waiting after `quorum_timeout`.)
        """
        request.check()
        started = time.monotonic()
        with (
            self._translated(f"{self.name}, table {request.database}.{request.table}"),
            self._within(request) as deadline,
        ):
            features = self.features()
            if (request.exact and features.deduplication_token) or (
                request.by_token and not features.deduplication_token
            ):
                text = f"its server has tokens: {features.deduplication_token}, which the block's first insert had not"
                raise Retryable(f"{self.name}: block for {request.database}.{request.table} refused: {text}", after=0.5)
            settings = request.settings(features)
            self._refuse_unknown(settings)
            client = self._connection()
            with client.disconnect_on_error("", settings):
                self._insert(client.connection, request, deadline)
                lines = _read_until_end(client.connection, deadline)
        known = any(reports_duplicate(source, text, request.database, request.table) for source, text in lines)
        return InsertResult(time.monotonic() - started, known if known or features.logs else None)

    def _insert(self, connection: Any, request: InsertRequest, deadline: Deadline) -> None:
        if self._features is None or connection.server_info.version_tuple() != self._features.version:
            raise ConnectionError("the server was replaced by another version")
        connection.socket.settimeout(deadline.remaining())
        # Without a list of columns the sample is the whole table, and the server keeps its structure until the end.
        columns = None if request.exact else [name for name, _ in request.header]
        sample = _begin_insert(self._client, request.database, request.table, columns)
        found = difference(request.header, tuple(sample.columns_with_types))
        if found and request.exact:
            raise Retryable(f"{self.name}: table {request.database}.{request.table} was altered meanwhile: {found}")
        if found:
            raise Permanent(
                f"{self.name}: block for {request.database}.{request.table} refused: {found}", reason="ColumnsDiffer"
            )
        connection.fout.flush()
        request.before()
        body = memoryview(request.body)
        connection.socket.sendall(_packet(""))
        for at in range(0, len(body), _CHUNK):
            connection.socket.settimeout(deadline.remaining())
            connection.socket.sendall(body[at : at + _CHUNK])
        connection.socket.settimeout(deadline.remaining())
        connection.send_data(RowOrientedBlock())

    @contextmanager
    def _within(self, request: InsertRequest) -> Iterator[Deadline]:
        """Let connecting and asking take at most a quarter of the lifetime each, and restore the usual limits after."""
        connection = self._connection().connection
        usual = (connection.connect_timeout, connection.sync_request_timeout, self._timeout)
        quarter = request.lifetime / 4
        _set_timeouts(connection, *(min(quarter, seconds) for seconds in usual))
        try:
            yield Deadline(request.lifetime)
        finally:
            _set_timeouts(connection, *usual)

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        client, self._client, self._features = self._client, None, None
        if client is not None:
            with suppress(OSError):
                client.disconnect()

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connection(self) -> Any:
        if self._client is None:
            config = self._config
            if problem := unreadable(config):
                raise unreachable(self.name, problem)
            self._client = Client(
                config.host,
                port=config.port,
                database=config.database,
                user=config.user,
                password=config.password.read() if config.password else "",
                client_name="blockhouse",
                connect_timeout=config.connect_timeout_seconds,
                send_receive_timeout=self._timeout,
                sync_request_timeout=config.connect_timeout_seconds,
                client_revision=REVISION,
                **_tls_arguments(config),
            )
        return self._client

    def _refuse_unknown(self, settings: Settings) -> None:
        """The driver leaves out, with a warning only, what it cannot encode for an old server."""
        features = self.features()
        for name in settings:
            if name not in features.settings or not (features.settings_as_text or name in typed_settings):
                raise Permanent(
                    f"{self.name}: setting {name} does not exist on this server ({features.version_text})",
                    reason="UnknownSetting",
                )

    @contextmanager
    def _translated(self, where: str) -> Iterator[None]:
        """Turn what the driver raises into our errors; after any of them the connection is opened again."""
        try:
            yield
        except driver.ServerException as error:
            self.close()
            raise classify(error.code, error.message, where) from error
        except (driver.NetworkError, driver.SocketTimeoutError) as error:  # raised by the driver's connect() only
            self.close()
            raise unreachable(where, _why(error)) from error
        except (OSError, EOFError) as error:
            self.close()
            raise interrupted(where, str(error) or type(error).__name__) from error
        except driver.Error as error:
            self.close()
            raise classify(error.code or 0, error.message or type(error).__name__, where) from error
        except BaseException:
            self.close()
            raise


def _why(error: driver.NetworkError | driver.SocketTimeoutError) -> str:
    """What the system answered; of a time-out it has no text, and the driver's is the address alone."""
    late = isinstance(error, driver.SocketTimeoutError)
    text = str(error.message)
    return f"it does not answer in time {text}".rstrip() if late and text.startswith("(") else text


def _packet(table: str) -> bytes:
    """A data packet's head: type 2, table (none for an INSERT's rows), block info (1: no overflows, 2: bucket -1,
    0: end). The Native block follows."""
    return b"\x02" + bytes([len(table)]) + table.encode() + _BLOCK_INFO


def _begin_insert(client: Any, database: str, table: str, columns: Sequence[str] | None) -> Any:
    """Send the INSERT; returns the server's sample block, of all insertable columns for None. Inside
    `disconnect_on_error` only."""
    listed = f" ({identifiers(columns)})" if columns is not None else ""
    client.connection.send_query(f"INSERT INTO {qualified(database, table)}{listed} VALUES")
    client.connection.send_external_tables(None)
    return client.receive_sample_block()


def _effective_settings(client: Any, features: Features) -> tuple[dict[str, str], bool]:
    """The values an insert's settings have when they are sent, by name, and whether the server sends log lines."""
    settings = {**features.switches, **({"send_logs_level": "trace"} if features.log_lines else {})}
    rows: list[tuple[str, str]] = []
    logs = False
    with client.disconnect_on_error("", settings):
        connection = client.connection
        names = ", ".join(f"'{name}'" for name in features.switches)
        connection.send_query(f"SELECT name, value FROM system.settings WHERE name IN ({names})")
        connection.send_external_tables(None)
        while (packet := connection.receive_packet()).type != ServerPacketTypes.END_OF_STREAM:
            if packet.type == ServerPacketTypes.EXCEPTION:
                raise packet.exception
            if packet.type == ServerPacketTypes.DATA:
                rows += packet.block.get_rows()
            logs = logs or packet.type == ServerPacketTypes.LOG
    return dict(rows), logs


def _read_until_end(connection: Any, deadline: Deadline) -> list[tuple[str, str]]:
    """The server's log lines of the running INSERT: logger and text. Raises the server's exception."""
    lines: list[tuple[str, str]] = []
    while True:
        connection.socket.settimeout(deadline.remaining())
        packet = connection.receive_packet()
        if packet.type == ServerPacketTypes.END_OF_STREAM:
            return lines
        if packet.type == ServerPacketTypes.EXCEPTION:
            raise packet.exception
        if packet.type == ServerPacketTypes.LOG:
            names = [name for name, _ in packet.block.columns_with_types]
            columns = packet.block.get_columns()
            lines += zip(columns[names.index("source")], columns[names.index("text")], strict=True)


def _set_timeouts(connection: Any, connect: float, ping: float, exchange: float) -> None:
    connection.connect_timeout = connect
    connection.sync_request_timeout = ping
    connection.send_receive_timeout = exchange
    if connection.connected:
        connection.socket.settimeout(exchange)


def _tls_arguments(config: ClickHouse) -> dict[str, Any]:
    tls = config.tls
    if tls is None:
        return {}
    return {
        "secure": True,
        "verify": tls.verify,
        "ca_certs": str(tls.ca_file) if tls.ca_file else None,
        "certfile": str(tls.cert_file) if tls.cert_file else None,
        "keyfile": str(tls.key_file) if tls.key_file else None,
        "keypass": tls.key_password.read() if tls.key_password else None,
    }
