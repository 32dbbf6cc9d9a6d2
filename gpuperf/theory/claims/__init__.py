"""Hold every claim of the lecture and reading notes beside the figure that checks it."""
