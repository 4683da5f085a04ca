"""The one door to private torch: each name with a version range, a probe, and a test that fails the day it moves."""
