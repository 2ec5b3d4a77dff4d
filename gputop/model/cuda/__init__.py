"""CUDA_VISIBLE_DEVICES: parse, enumerate, resolve, explain, advise, pick free GPUs."""
