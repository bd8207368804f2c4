"""Status: what a proxy shows of itself."""
