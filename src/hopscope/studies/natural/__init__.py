"""Does natural text supply the curriculum (S6)?"""
