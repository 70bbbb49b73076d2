"""Where units are trained: workers on this machine or on a cluster, and what follows a run into trackers."""
