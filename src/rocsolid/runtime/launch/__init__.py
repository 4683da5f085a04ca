"""Runs a program with rocsolid's protection and without changing its code, together with every Python process that it starts."""
