"""The study of shared information (S3): does attention need positions that share some?"""
