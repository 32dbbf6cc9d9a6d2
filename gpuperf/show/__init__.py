"""Define tables, texts and figures for every verb, and render them."""
