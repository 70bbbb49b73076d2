"""What is asked: tasks whose batches carry roles and relations."""
