"""Sending rows to a pipeline: `Producer` for applications. See `docs/producing.md`."""

from blockhouse.producer.producer import Producer, SchemaSource
from blockhouse.producer.transport import Delivery, DeliveryFailed, Transport

__all__ = ["Delivery", "DeliveryFailed", "Producer", "SchemaSource", "Transport"]
