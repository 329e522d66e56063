"""How a layer leaves: PyTorch, MultiheadAttention, ONNX, safetensors; one round-trip judge."""
