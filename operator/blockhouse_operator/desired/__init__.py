"""From a spec to the manifests it asks for. Pure: the same spec gives the same manifests, byte for byte."""
