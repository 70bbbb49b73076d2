"""The study of circuits (paper, section 8): which circuits seeds learn, read and proven member by member."""
