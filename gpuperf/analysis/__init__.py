"""Pure functions from records to findings: no hardware, no files."""
