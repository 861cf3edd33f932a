"""What opgraft says where Triton is not installed: `explain` turns the failed import into advice."""

import platform


def explain(error: ModuleNotFoundError) -> ImportError:
    """The error to raise for a failed import: Triton's absence explained, any other error as it came."""
    if error.name is None or error.name.partition(".")[0] != "triton":
        return error
    system = platform.system()
    cure = "pip install triton" if system == "Linux" else f"Triton has no wheel for {system}; use Linux"
    if system == "Windows":
        cure += ", for example in WSL"
    return ImportError(f"opgraft's kernels need Triton, which is not installed: {cure}", name="triton")
