"""Theory beside training: does gradient descent find, keep or lose what the compiler builds?"""
