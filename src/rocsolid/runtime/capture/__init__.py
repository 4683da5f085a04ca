"""Captures whole calls as device graphs, checks their answers, and replays them at next to no cost on the host."""
