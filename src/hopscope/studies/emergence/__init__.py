"""The study of emergence (paper, section 9): in which order heads form, and what needs what."""
