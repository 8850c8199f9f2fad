"""The small kernel: a second, independent reader of the files that the kernel proves.

It was written from docs/certificate.md alone, shares no line with the kernel, and imports nothing of ours. It knows
networks, formulas and programs over tokens in float64 and float32 under softmax attention, and refuses everything
else by name. It has no tightenings but the norm rule and lines under gates, so that it is short, and its bound may
be wider. Read it in this order: bounds, file, circuit, same, ranges, errors, stream, heads, norm, check; then, for
formulas, functions, chord, tables, taylor.

    python -m headsmith.small_kernel model.safetensors
"""
