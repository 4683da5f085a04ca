import os

os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "0"
os.environ["MY_OWN_NAME"] = "1"
os.environ["TORCH_MINE"] = "1"
print(os.environ["TORCH_MINE"])
