"""Of scrub(), the walk over a shelf in the background."""

from python_bugs.bug import Planted

FILE = "_scrub.py"
TESTS = "test_scrub.py "

BUGS = [
    Planted(
        "scrub_catches_up",
        FILE,
        "max(self._next + nbytes / self._rate, now)",
        "self._next + nbytes / self._rate",
        TESTS + "never_made_up_for",
    ),
    Planted(
        "scrub_keeps_the_file",
        FILE,
        "        self._options = options\n",
        "        self._options, self._kept = options, core\n",
        TESTS + "let_go",
    ),
    Planted(
        "scrub_repair_given_up",
        FILE,
        "            except _FOR_NOW as error:\n"
        "                self._error = error.with_traceback(None)\n",
        "            except _FOR_NOW as error:\n"
        "                self._error = error.with_traceback(None)\n"
        "                return\n",
        TESTS + "waits_for_what_is_not_persisted",
    ),
    Planted(
        "scrub_not_ended",
        "_closing.py",
        "        shelf._scrub.stop()\n",
        "        pass\n",
        TESTS + "others_go_on",
    ),
]
