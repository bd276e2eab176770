"""Worker processes for CPU-bound work that would stop an event loop; they may be killed.

Gateway and fleet call it; nothing else starts such a process. A thread is no help, since parsers
and compilers hold the interpreter lock. Start reading at `pool.py`.
"""
