"""The study `sharing` (S3): does attention need positions that share information?"""
