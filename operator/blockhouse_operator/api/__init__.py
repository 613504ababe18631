"""The two resources as frozen values, their names, conditions and CRDs. Pure: no client, no clock, no chance."""
