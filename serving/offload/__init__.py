"""Work that could hold an event loop, done in processes beside it that may be killed.

A thread is no help: parsers and compilers hold the interpreter. Gateway and fleet each keep a
`OffloadPool` of such processes; nothing else starts one.
"""
