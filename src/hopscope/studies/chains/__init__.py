"""What studies of chains share: the recipe and its options, a quick shape, times of learning, why a model failed."""
