"""The study of capacity (S4): what moves the smallest number of layers that learns a chain?"""
