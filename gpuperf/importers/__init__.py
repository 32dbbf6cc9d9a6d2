"""Other tools' files as records."""
