"""Device files, the peaks of a device, and what physics allows under them."""
