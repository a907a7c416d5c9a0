"""PyTorch classifiers: find the last layer, guard the model, export it."""
