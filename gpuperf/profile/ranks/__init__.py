"""Profile the ranks of a distributed program together, and report them as one."""
