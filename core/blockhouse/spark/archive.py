"""Archives the classes of Spark's JVM, loaded and verified once and for all (Java's class data sharing).

    python -m blockhouse.spark.archive

writes the archive into the installation; without it everything works, but each start takes a second of processor time
more. It belongs to one JVM and one set of jars: any other one ignores it, with a warning.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from blockhouse.config.pipeline import Spark
from blockhouse.spark import daemon
from blockhouse.spark.session import Lease, SparkApplication
from blockhouse.spark.settings import ARCHIVE, JAVA_OPTIONS

PATIENCE = 120.0


def write() -> None:
    """Run an application as every driver does, and keep what its JVM has loaded."""
    ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="blockhouse-archive-") as folder:
        made = Path(folder) / ARCHIVE.name
        options = f'{JAVA_OPTIONS} "-XX:ArchiveClassesAtExit={made}" -Xlog:cds=off'
        config = Spark(conf={"spark.driver.extraJavaOptions": options})
        application: SparkApplication[Lease, Lease] = SparkApplication(config, "archive", iter, daemon.__name__)
        application.warm_up()
        application.end(PATIENCE)
        ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, ARCHIVE)


if __name__ == "__main__":
    write()
