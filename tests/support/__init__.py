"""What several test modules share: kernels, PyTorch's own answers, faults and processes. Nothing here is a test."""
