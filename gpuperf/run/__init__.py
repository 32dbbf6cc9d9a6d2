"""Cases, living workers and kept results."""
