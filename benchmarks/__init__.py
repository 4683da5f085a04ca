"""Benchmarks: the same models with torch alone and with rocsolid. Most of them need torchvision and transformers."""
