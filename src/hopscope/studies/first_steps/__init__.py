"""The study of first experiments: what the curriculum does, which heads are used, how deep is deep enough."""
