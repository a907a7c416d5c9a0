"""Other people's files: embeddings, heads, models and images in; scores out."""
