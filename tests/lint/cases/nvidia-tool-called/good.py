import shutil
import subprocess

print("see nvidia-smi")
if shutil.which("nvidia-smi"):
    subprocess.run(["nvidia-smi"])
try:
    subprocess.run(["nvcc", "--version"])
except FileNotFoundError:
    pass
subprocess.run(["rocm-smi"])
