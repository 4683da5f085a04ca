import torch
import torch._dynamo.utils as dynamo_utils

dynamo_utils.preserve_global_state = patched
torch._dynamo.convert_frame.preserve_global_state = patched
