"""What the parts of a driver share: its settings, partitions and grants, and what does not work now."""

from __future__ import annotations

import structlog

from blockhouse.config.mirror import MirrorConfig
from blockhouse.errors import BlockhouseError
from blockhouse_mirror.kafka.topics import Discovery
from blockhouse_mirror.protocol.ownership import Ownership
from blockhouse_mirror.protocol.takeover import Stop
from blockhouse_mirror.runtime.partitions import Partition, Partitions

log = structlog.get_logger(__name__)


class Mirrored:
    """The state of one mirror, on the event loop's thread."""

    def __init__(self, config: MirrorConfig) -> None:
        self.config = config
        self.partitions = Partitions()
        self.ownership = Ownership()
        self.discovery: Discovery | None = None
        """What was found last; None until both clusters have answered."""
        self.errors: dict[str, str] = {}
        """What does not work now, by what was tried; empty when everything does."""

    def failed(self, what: str, error: BlockhouseError) -> None:
        """What was tried will be tried again."""
        if self.errors.get(what) != str(error):
            log.warning("mirror.waits", what=what, error=str(error))
        self.errors[what] = str(error)

    def worked(self, what: str) -> None:
        self.errors.pop(what, None)

    @staticmethod
    def stop(partition: Partition, stop: Stop) -> None:
        """The partition is not mirrored any more until a person decides."""
        log.error("mirror.partition_stopped", partition=str(partition.key), reason=stop.reason, message=stop.message)
        partition.stop = stop
