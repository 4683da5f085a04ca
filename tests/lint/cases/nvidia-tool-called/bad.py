import os
import subprocess

version = subprocess.run("nvcc --version", shell=True, capture_output=True)
os.system("nvidia-smi -L")
count = len(subprocess.check_output(["/usr/bin/nvidia-smi", "-L"]).splitlines())
