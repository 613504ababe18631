"""What a mirror's driver and its tasks exchange, over the authenticated gate of `blockhouse.gate`."""
