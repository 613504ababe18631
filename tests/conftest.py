"""How properties are tested: what they judge is the code, never how fast a shared machine generates input for it."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("blockhouse", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("blockhouse")
