"""The packages with which models are tried: NumPy and onnx, and onnxruntime, which is None where it cannot be imported.

Ends with exit code 77 (ctest: skipped) where NumPy or onnx is missing.
"""

import sys

try:
    import numpy
    import onnx
except ImportError as error:
    print(f"SKIPPED: {sys.executable} cannot import a package ({error}); Debian's is python3-onnx, and CONVNET_ONNX_PYTHON "
          "names a Python that has it")
    sys.exit(77)
try:
    import onnxruntime
    onnxruntime.set_default_logger_severity(3)
except ImportError:
    onnxruntime = None
