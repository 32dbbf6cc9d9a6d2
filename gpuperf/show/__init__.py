"""Tables and texts of every verb: one `Table` value, a renderer for each format, one screen."""
