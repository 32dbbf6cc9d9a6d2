"""What the verbs of the command line share: options, progress, the measuring loop, printing."""
