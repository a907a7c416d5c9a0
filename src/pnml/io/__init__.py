"""Read embeddings, heads, models and images; write scores."""
