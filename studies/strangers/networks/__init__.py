"""Networks that others trained and published, written anew, by family; ``strangers.py`` lists and reads them.

A function returns a network as published, without its weights; it takes images that are normalised already. Where a
ReLU is a function and where it is a module is on purpose: the detector watches the outputs of modules.
"""
