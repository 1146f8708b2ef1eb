"""The same CNN in plain PyTorch, plain JAX, plain TensorFlow, and Keras, on one or more processes.

Each module has `train(steps, epochs)`, which trains on this process's part of each global batch and
yields after each of its epochs. Rank and addresses are in the environment.
"""
