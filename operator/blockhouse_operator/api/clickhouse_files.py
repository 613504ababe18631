"""Configuration files that a user adds to a managed ClickHouse, and the profiles and quotas that users share."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, model_validator

from blockhouse_operator.api.base import Between, Duration, ListMap, Part, Rule
from blockhouse_operator.api.references import ConfigMapKeyRef, SecretKeyRef

FILES = 16
"""Files of a sort at most."""
LARGEST_TEXT = 32_768
"""Characters of a file in the spec itself."""
_SETTING = r"^[a-z][a-z0-9_]*$"
_SERVER_SETTING = r"^[a-z][a-z0-9_]*(/[a-z][a-z0-9_]*)?$"
TAKEN_SETTINGS = (
    *("distributed_ddl", "http_port", "https_port", "include_from", "interserver_http_credentials"),
    *("interserver_http_host", "interserver_http_port", "interserver_https_port", "interserver_https_host"),
    *("listen_host", "listen_try", "macros", "openSSL", "path", "remote_servers", "tcp_port", "tcp_port_secure"),
    *("user_directories", "users_config", "zookeeper"),
)
"""What of the servers' configuration is the operator's."""

FileName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*\.xml$", max_length=63)]
"""Name of a configuration file."""
ShortName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$", max_length=32)]
"""Name of a profile or a quota."""
_Value = Annotated[str, Field(max_length=253)]
SettingMap = Annotated[dict[str, _Value], Field(max_length=32)]
"""Settings of ClickHouse: name to value."""
ServerSettings = Annotated[
    dict[str, _Value],
    Field(max_length=64),
    Rule(
        f"self.all(name, name.matches('{_SERVER_SETTING}'))",
        "expected names of letters, digits and underscores, with at most one / for a setting of a section",
    ),
]
"""Settings of the server: name, or SECTION/NAME, to value."""


class ConfigFile(Part):
    """A configuration file, in XML, of exactly one source."""

    rules = (
        Rule(
            "[has(self.text), has(self.configMapKeyRef), has(self.secretKeyRef)].filter(given, given).size() == 1",
            "give exactly one of text, configMapKeyRef and secretKeyRef",
        ),
    )

    name: FileName
    """Its name, which decides about the order in which files are merged."""
    text: Annotated[str, Field(min_length=1, max_length=LARGEST_TEXT)] | None = None
    """The file itself. Passwords and keys belong into a Secret."""
    config_map_key_ref: ConfigMapKeyRef | None = None
    """The key of a ConfigMap that has it."""
    secret_key_ref: SecretKeyRef | None = None
    """The key of a Secret that has it."""

    @model_validator(mode="after")
    def _one_source(self) -> ConfigFile:
        if sum(source is not None for source in (self.text, self.config_map_key_ref, self.secret_key_ref)) != 1:
            raise ValueError("give exactly one of text, configMapKeyRef and secretKeyRef")
        return self


ConfigFiles = Annotated[tuple[ConfigFile, ...], Field(max_length=FILES), ListMap()]


class QuotaLimits(Part):
    """How much a user may ask for in an interval; 0 is unlimited."""

    interval: Annotated[Duration, Between("1s", "744h")] = "1h"
    """The interval, counted from fixed moments."""
    queries: Annotated[int, Field(ge=0)] = 0
    """Queries."""
    errors: Annotated[int, Field(ge=0)] = 0
    """Queries that failed."""
    result_rows: Annotated[int, Field(ge=0)] = 0
    """Rows of results."""
    read_rows: Annotated[int, Field(ge=0)] = 0
    """Rows read from tables."""
    execution_time: Annotated[Duration, Between("0s", "744h")] = "0s"
    """Time spent on queries."""


class NamedQuota(QuotaLimits):
    """A quota for users that name it, counted for each of them by itself; 0 is unlimited."""

    name: ShortName
    """Its name."""


class Profile(Part):
    """Settings for users that name it."""

    name: ShortName
    """Its name. `default` and `readonly` are taken."""
    settings: SettingMap = {}
    """Settings, such as `max_memory_usage`."""

    @model_validator(mode="after")
    def _usable(self) -> Profile:
        if wrong := [name for name in self.settings if not re.match(_SETTING, name)]:
            raise ValueError(f"settings: {', '.join(wrong)}: expected names of letters, digits and underscores")
        return self


class MountedFile(Part):
    """A configuration file, and the key of the pipeline's Secret that has it. Another content has another key."""

    name: FileName
    """Name of the file."""
    key: Annotated[str, Field(max_length=253)]
    """Key of the Secret."""
