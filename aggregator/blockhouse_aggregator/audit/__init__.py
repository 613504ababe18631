"""Does every replica hold every row of Kafka exactly once? Compares the logs themselves with the provenance columns.

Independent of what the aggregators believe: it reads neither their metadata nor their metrics. The offsets their group
has committed excuse nothing; they distinguish rows that are not loaded yet from lost ones.
"""

from blockhouse_aggregator.audit.auditing import AuditImpossible, AuditSpec, run
from blockhouse_aggregator.audit.report import AuditReport, TableResult
from blockhouse_aggregator.audit.values import ValuesSpec

__all__ = ["AuditImpossible", "AuditReport", "AuditSpec", "TableResult", "ValuesSpec", "run"]
