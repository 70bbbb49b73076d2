"""For pre-norm layers without MLPs and with narrow heads: the stream is never made."""
