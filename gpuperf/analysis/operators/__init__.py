"""The operators of PyTorch, family by family: what does a call of one compute and move?"""
