"""Where it runs: units of a study, on this machine."""
