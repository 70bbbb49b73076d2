"""How roles are spread over heads, in words; apart from `roles`, so that whoever reads them loads no torch."""

ONE_EACH = "one each"
ONE_DOES_BOTH = "one head does both"
SHARED = "shared"
NEITHER = "neither"
MISSING = "a skill is missing"
