"""Small programs whose end and output tell one interpreter from another."""

from __future__ import annotations

_TEXT = '''
=== falls off the end
print("done")
=== exit code 0
import sys; sys.exit(0)
=== exit code 3
import sys; sys.exit(3)
=== exit code -1
import sys; sys.exit(-1)
=== exit code 256
import sys; sys.exit(256)
=== exit with a text
import sys; sys.exit("it was too much")
=== exit with None
import sys; sys.exit(None)
=== os._exit
import os; print("not flushed"); os._exit(7)
=== exception
def f():
    raise ValueError("no")
f()
=== exception with a cause
try:
    1 / 0
except ZeroDivisionError as error:
    raise KeyError("k") from error
=== exception with a context
try:
    1 / 0
except ZeroDivisionError:
    {}["k"]
=== syntax error
x = = 1
=== keyboard interrupt
raise KeyboardInterrupt
=== SIGINT
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
time.sleep(5)
=== SIGKILL
import os, signal; os.kill(os.getpid(), signal.SIGKILL)
=== SIGTERM
import os, signal; os.kill(os.getpid(), signal.SIGTERM)
=== SIGSEGV
import os, signal; os.kill(os.getpid(), signal.SIGSEGV)
=== abort
import os; os.abort()
=== excepthook
import sys
sys.excepthook = lambda *a: print("hook", a[0])
1 / 0
=== exit in a thread
import sys, threading
threading.Thread(target=sys.exit, args=(4,)).start()
=== threads at exit
import threading, time
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("main")
=== daemon thread
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("main")
=== atexit
import atexit
atexit.register(print, "bye")
atexit.register(print, "good")
1 / 0
=== atexit after exit
import atexit, sys
atexit.register(print, "bye")
sys.exit(5)
=== broken stdout
import os; os.close(1); print("lost")
=== annotations
def f(x: int) -> "str": ...
print(f.__annotations__)
=== main
print(sorted(globals()), __name__, __file__, __spec__, __doc__, __loader__.path)
=== doc
"""Words."""
print(__doc__)
=== main module
import sys, __main__
print(__main__ is sys.modules["__main__"], vars(__main__) is globals())
=== recursion
import sys; print(sys.getrecursionlimit())
=== warnings
import warnings
warnings.warn("careful")
warnings.warn("old", DeprecationWarning)
=== logging
import logging
logging.basicConfig(level="INFO", format="%(name)s %(message)s")
logging.info("x")
print(len(logging.root.handlers))
=== modules of ours
import sys; print([n for n in sys.modules if n.startswith("llmops")])
=== flags
import sys
print(sys.flags[:5], sys.executable, sys.prefix, sys.orig_argv, sys.argv)
=== signal handlers
import signal
print([(s, str(signal.getsignal(s))) for s in sorted(signal.valid_signals())])
=== no children
import os
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError as error:
    print(error)
=== pickle
import pickle
def f(): return 5
class C: pass
print(pickle.loads(pickle.dumps(f))(), type(pickle.loads(pickle.dumps(C()))))
=== spawned pool
import multiprocessing as mp
class C:
    def __init__(self, value): self.value = value
def f(value): return C(value * value)
if __name__ == "__main__":
    with mp.get_context("spawn").Pool(1) as pool:
        print([one.value for one in pool.map_async(f, [1, 2, 3]).get(timeout=20)])
=== order
import os, sys
for i in range(3):
    print("out", i)
    print("err", i, file=sys.stderr)
    os.write(1, b"raw\\n")
print("no newline", end="")
os._exit(0)
=== encoding
import sys
print("ä", "\\u2028")
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.encoding, stream.errors, stream.line_buffering, stream.name, stream.mode, stream)
'''


def programs() -> dict[str, str]:
    """By what they show."""
    found = {}
    for part in _TEXT.split("=== ")[1:]:
        name, _, code = part.partition("\n")
        found[name] = code
    return found
