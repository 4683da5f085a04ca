import shutil
import subprocess

from torch.version import cuda as cuda_version

print("see nvidia-smi")
if shutil.which("nvidia-smi"):
    subprocess.run(["nvidia-smi"])
try:
    subprocess.run(["nvcc", "--version"])
except FileNotFoundError:
    pass
subprocess.run(["rocm-smi"])
if cuda_version is not None:
    subprocess.check_output(["nvidia-smi"])
