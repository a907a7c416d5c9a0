"""Other ways to run the same work: on a cluster with Ray."""
