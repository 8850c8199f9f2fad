"""What others bring, as targets: modules of torch, ONNX files, estimators of scikit-learn, files of weights."""
