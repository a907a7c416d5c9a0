"""A PyTorch classifier guarded: its head and layers, read in every forward pass, and a detector of them."""
