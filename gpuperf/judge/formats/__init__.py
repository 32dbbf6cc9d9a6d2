"""Read the forms in which tasks and submissions are written, as data."""
