"""Buffers and memory resources, laid out as in `cuda.core._memory`: one class a file."""
