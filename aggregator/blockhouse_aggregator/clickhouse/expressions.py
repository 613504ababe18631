"""Asks the local replica for DEFAULT values, so that they are the server's own.

Must never take a replica's trouble for a row's: only errors that the values of a row cause make its message bad.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blockhouse.config.endpoints import ClickHouse
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.schema.expressions import ROWS
from blockhouse_aggregator.clickhouse.client import Replica

_OF_THE_VALUES = frozenset(
    {
        6,  # CANNOT_PARSE_TEXT
        26,  # CANNOT_PARSE_QUOTED_STRING
        27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
        32,  # ATTEMPT_TO_READ_AFTER_EOF
        36,  # BAD_ARGUMENTS
        38,  # CANNOT_PARSE_DATE
        41,  # CANNOT_PARSE_DATETIME
        69,  # ARGUMENT_OUT_OF_BOUND
        70,  # CANNOT_CONVERT_TYPE
        72,  # CANNOT_PARSE_NUMBER
        131,  # TOO_LARGE_STRING_SIZE
        153,  # ILLEGAL_DIVISION
        321,  # VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
        349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
        376,  # CANNOT_PARSE_UUID
        407,  # DECIMAL_OVERFLOW
        441,  # CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING
        467,  # CANNOT_PARSE_BOOL
        675,  # CANNOT_PARSE_IPV4
        676,  # CANNOT_PARSE_IPV6
        691,  # UNKNOWN_ELEMENT_OF_ENUM
        49,  # LOGICAL_ERROR: 18.16 reports it for an Enum's unknown element
    }
)


class DefaultValues:
    """The `Evaluate` of `wire.filling`. One connection, made at the first question. NOT thread-safe."""

    def __init__(self, clickhouse: ClickHouse) -> None:
        self._replica = Replica(clickhouse)

    def __call__(self, select: str, body: bytes) -> Sequence[Any]:
        """Raises ValueError for the values, Retryable for everything else."""
        try:
            return self._replica.select_from(ROWS, body, select)
        except BlockhouseError as error:
            if error.code in _OF_THE_VALUES:
                raise ValueError(str(error)) from error
            raise Retryable(f"a DEFAULT cannot be evaluated now: {error}", after=1.0) from error

    def close(self) -> None:
        """Close its connection to the server, if it has one."""
        self._replica.close()
