"""Tile and wave arithmetic of matrix products: kernel names, grids, tilings, waves."""
