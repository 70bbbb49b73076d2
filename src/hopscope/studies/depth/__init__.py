"""The depth study (paper, section 7): how many layers retrieval takes, and what order it is learned in."""
