"""`python -m csd_pipeline.cli`, the form that `accelerate launch -m` starts."""

from .app import main

main()
