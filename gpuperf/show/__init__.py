"""Tables, texts and figures of every verb: a value each, and what renders it."""
