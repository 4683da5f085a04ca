import os

os.environ["TORCHINDUCTOR_MAX_AUTOTUNES"] = "0"
os.environ.setdefault("HIP_CACHE_ENABLED", "1")
os.environ.update({"INDUCTOR_FREEZING": "1"})
