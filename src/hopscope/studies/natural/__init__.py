"""The study `natural`: does natural text supply the curriculum that chains need (S6)?"""
