"""Options, progress, the measuring loop and printing, which the verbs share."""
