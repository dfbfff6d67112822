"""Names and limits the whole package shares. Nothing is imported here, so a command line can read them at once."""

EMBEDDED = "embedded"  # the model inside the package
PARTS = ("drafter", "relaxation", "alignment_filter")  # of a method, as components of the pipeline
SEEDS = 2**64  # number of seeds: 0 .. 2**64 - 1
