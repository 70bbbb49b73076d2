"""The study `capacity`: what moves the smallest number of layers that learns a chain."""
