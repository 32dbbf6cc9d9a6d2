"""Is a change slower than what it replaces, and how often would this be said in error?"""
