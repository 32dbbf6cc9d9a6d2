"""The command line: each verb parses, makes one call, prints and returns an exit code."""
