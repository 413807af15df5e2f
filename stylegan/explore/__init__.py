"""A local page to explore a generator: its controls, its images and its server."""
