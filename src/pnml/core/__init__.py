"""The theorem and the detector on embeddings: any array library, no PyTorch needed."""
