"""The depth study: how many layers does it take to follow a chain (paper, section 7)?"""
