"""`rs.capture`: captures whole calls as CUDA or HIP graphs, verifies them against eager, and replays them."""
