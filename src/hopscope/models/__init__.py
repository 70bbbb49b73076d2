"""Who answers: transformers with a leading member axis, and interventions on them."""
