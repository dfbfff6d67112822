"""ComfyUI nodes over ``csd_pipeline``: they build parts, call the pipeline, and show what it reports."""
