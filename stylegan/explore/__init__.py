"""A local page to play with a generator: its controls, its pictures, and the server."""
