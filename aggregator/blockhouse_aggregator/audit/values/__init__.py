"""Is every stored value the one that was sent? Reads messages by another path than the aggregators and compares."""

from blockhouse_aggregator.audit.values.judging import ValueAudit, ValuesSpec
from blockhouse_aggregator.audit.values.report import TableValues, ValuesReport

__all__ = ["TableValues", "ValueAudit", "ValuesReport", "ValuesSpec"]
